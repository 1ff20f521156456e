package fleet

import (
	"context"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
)

// makeTasks creates a task for each vehicle in repair, for some without a charge and for some that
// are due for an inspection. It takes no random numbers, so that other records do not depend on it.
func (f *simulator) makeTasks() {
	number := 0
	for _, c := range f.cities {
		for n, m := range c.vehicles {
			var at time.Time
			var t Task
			switch {
			case m.fate == endsInRepair:
				at = m.StateChangedAt.Std()
				t = Task{Kind: Repair, Title: repairs[number%len(repairs)], State: TaskInProgress, Priority: HighPriority, TakesVehicleOut: true, StartedAt: rfc3339.Time(at.Add(2 * time.Hour)),
					Checklist: []TaskItem{{Text: "Find the damage", Done: true, DoneAt: rfc3339.Time(at.Add(2 * time.Hour)), DoneBy: &Actor{Type: systemActor.Type}}, {Text: "Replace the part"}, {Text: "Test ride"}}}
				t.DueAt = rfc3339.Time(f.today.Add(42 * time.Hour))
			case m.fate == endsDischarged && n%2 == 0:
				at = m.StateChangedAt.Std()
				t = Task{Kind: BatterySwap, Title: "Swap the battery", State: TaskOpen, Priority: NormalPriority, DueAt: rfc3339.Time(at.Add(6 * time.Hour))}
			case m.fate == endsAvailable && n%9 == 4:
				at = f.today.Add(-30 * time.Hour)
				t = Task{Kind: Inspection, Title: "Inspect brakes and tyres", State: TaskOpen, Priority: NormalPriority, Recurrence: &Recurrence{Days: 90, Meters: 500_000},
					Checklist: []TaskItem{{Text: "Brakes"}, {Text: "Tyres"}, {Text: "Lights and bell"}}, DueAt: rfc3339.Time(f.today.Add(14 * 24 * time.Hour)), DueOdometerMeters: new(*m.OdometerMeters + 80_000)}
			default:
				continue
			}
			t.RecordHeader, t.Timestamps = f.head(taskPrefix, "task", c.sub.ID, at, number), timestampsAt(at)
			t.VehicleID, t.CreatedBy, t.Photos, t.revision = m.ID, systemActor, []TaskPhoto{}, 1
			if t.Checklist == nil {
				t.Checklist = []TaskItem{}
			}
			t.Overdue = t.isOverdue(&m.Vehicle, f.now)
			m.task = &t
			number++
		}
	}
}

var repairs = []string{"Replace the brake", "Replace the front tyre", "Repair the lock", "Tighten the handlebar"}

// insert writes a vehicle and its task.
func (m *simVehicle) insert(ctx context.Context, tx *db.Tx, a orgContext) (err error) {
	row := m.columns()
	if t := m.task; t != nil {
		if t.doc, err = encode(t); err != nil {
			return err
		}
		if err := insertOne(ctx, tx, "tasks", a.id, t.columns()); err != nil {
			return err
		}
		if t.takesOut() {
			row = append(row, column{"out_tasks", int64(1)})
		}
		if !t.Overdue {
			row = append(row, column{"task_odometer_meters", integerValue(t.DueOdometerMeters)})
		}
	}
	return insertOne(ctx, tx, "vehicles", a.id, row)
}
