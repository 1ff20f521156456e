# frozen_string_literal: true

require "kickstand/testing"
desk = Kickstand::Helpdesk.new # KICKSTAND_URL, KICKSTAND_KEY
ticket = desk.tickets.create(subject: "The lock does not open", text: "It beeps twice.", customer: { email: "ada@example.com" })
puts desk.messages.create(ticket.id, kind: "reply", text: "It is repaired.").text
puts desk.tickets.list(status: %w[open pending], limit: 1).each_page.first(3).flat_map(&:data).map(&:subject)
fleet = Kickstand::Fleet.new(key: ENV.fetch("KICKSTAND_FLEET_KEY")) # a key of the sandbox
vehicle = fleet.vehicles.list(state: "available", form_factor: "scooter_standing").first
rider = fleet.customers.list(subaccount_id: vehicle.subaccount_id, status: "active").find { |customer| customer.open_ride_id.nil? }
ride = fleet.rides.create(customer_id: rider.id, vehicle_id: vehicle.id)
puts fleet.rides.update(ride.id, status: "completed", end_location: vehicle.location, accept_out_of_zone_fee: true).status
body, secret = '{"id":"evt-1","event":"ticket.created","created_at":"2026-11-21T09:30:00Z","data":{}}', "whsec_#{["k" * 32].pack("m0")}"
puts Kickstand::Webhooks.verify(body, Kickstand::Testing.sign(body, secret:), secret:).event
