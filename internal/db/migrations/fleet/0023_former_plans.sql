-- The pricing plans that vehicles, vehicle types and subaccounts had before they were assigned others, and the
-- former types of vehicles: rides of apps that were offline have the plan of their start; package fleet,
-- plan_former.go.
CREATE TABLE former_plans (
	organization_id TEXT NOT NULL,
	subject_id      TEXT NOT NULL, -- of the vehicle, the type or the subaccount
	replaced_at     BIGINT NOT NULL, -- µs
	pricing_plan_id TEXT, -- NULL: none
	vehicle_type_id TEXT, -- of a vehicle
	PRIMARY KEY (organization_id, subject_id, replaced_at)
) WITHOUT ROWID;
