-- Maintenance tasks of vehicles; package fleet, task.go.
CREATE TABLE tasks (
	organization_id     TEXT NOT NULL,
	id                  TEXT NOT NULL,
	subaccount_id       TEXT NOT NULL,
	revision            BIGINT NOT NULL,
	external_id         TEXT,
	vehicle_id          TEXT NOT NULL,
	kind                TEXT NOT NULL,
	state               TEXT NOT NULL,
	assignee_id         TEXT,
	ticket_number       BIGINT,
	overdue             BOOLEAN NOT NULL,
	out_of_service      BOOLEAN NOT NULL, -- the task takes its vehicle out of service now
	due_at              BIGINT,
	due_odometer_meters BIGINT,
	timer_at            BIGINT,           -- when the task becomes overdue by time
	updated_at          BIGINT NOT NULL,
	doc                 TEXT NOT NULL,
	PRIMARY KEY (organization_id, id)
);
CREATE UNIQUE INDEX tasks_external ON tasks (organization_id, external_id, subaccount_id) WHERE external_id IS NOT NULL;
CREATE INDEX tasks_vehicle ON tasks (organization_id, vehicle_id, id);
CREATE INDEX tasks_subaccount ON tasks (organization_id, subaccount_id, id);
CREATE INDEX tasks_state ON tasks (organization_id, state, id);
CREATE INDEX tasks_assignee ON tasks (organization_id, assignee_id, id) WHERE assignee_id IS NOT NULL;
CREATE INDEX tasks_ticket ON tasks (organization_id, ticket_number, id) WHERE ticket_number IS NOT NULL;
CREATE INDEX tasks_due ON tasks (organization_id, due_at, id);
CREATE INDEX tasks_timer ON tasks (organization_id, timer_at, id) WHERE timer_at IS NOT NULL;
CREATE INDEX tasks_updated ON tasks (organization_id, updated_at, id);

-- Pictures of tasks. Their names and sizes are in the documents of the tasks.
CREATE TABLE task_photos (
	organization_id TEXT NOT NULL,
	task_id         TEXT NOT NULL,
	id              TEXT NOT NULL,
	content         BLOB NOT NULL,
	PRIMARY KEY (organization_id, task_id, id)
);

-- What reports and rides of a vehicle need of its tasks, so that vehicles without tasks cost no
-- statement: the number of tasks that take it out of service now, and the least odometer at which
-- an open task becomes overdue.
ALTER TABLE vehicles ADD COLUMN out_tasks BIGINT NOT NULL DEFAULT 0;
ALTER TABLE vehicles ADD COLUMN task_odometer_meters BIGINT;
