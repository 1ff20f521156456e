// Package fleet is the fleet of vehicles and its rules.
//
// What is here so far decides and computes, and stores nothing: what a ride costs
// ([Tariff]), what shapes zones have and what is allowed where ([Area], [Rule]),
// and which states follow which ([RideStatus], [VehicleState]).
package fleet
