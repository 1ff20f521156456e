package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/event"
)

// sendOverdue records the event and the notice of a task that has just become overdue, once for
// each due time and due odometer. The task is stored and locked; before is nil for a new one.
func (s *Service) sendOverdue(ctx context.Context, tx *db.Tx, a orgContext, before, t *Task) error {
	if !t.Overdue {
		return nil
	}
	stays := before != nil && before.Overdue
	byTime := t.pastTime(a.now) && !(stays && before.DueAt == t.DueAt)
	byDistance := t.pastDistance(t.vehicle) && !(stays && before.DueOdometerMeters != nil && *before.DueOdometerMeters == *t.DueOdometerMeters)
	if !byTime && !byDistance {
		return nil
	}
	var at, meters *int64
	err := tx.QueryRow(ctx, "SELECT sent_due_at, sent_odometer_meters FROM tasks WHERE organization_id = $1 AND id = $2", a.id, t.ID).Scan(&at, &meters)
	if err != nil {
		return fmt.Errorf("read what was sent of a task: %w", err)
	}
	fresh := false
	if due := t.DueAt.Std().UnixMicro(); byTime && (at == nil || *at != due) {
		at, fresh = &due, true
	}
	if byDistance && (meters == nil || *meters != *t.DueOdometerMeters) {
		meters, fresh = t.DueOdometerMeters, true
	}
	if !fresh {
		return nil
	}
	var relay string
	if s.live {
		text, err := encode(taskNotice{Key: fmt.Sprintf("%s %d", t.ID, t.revision)})
		if err != nil {
			return err
		}
		relay = string(text)
	}
	if _, err := tx.Exec(ctx, "UPDATE tasks SET sent_due_at = $3, sent_odometer_meters = $4, relay = $5 WHERE organization_id = $1 AND id = $2",
		a.id, t.ID, integerValue(at), integerValue(meters), db.Text(relay)); err != nil {
		return fmt.Errorf("note what is sent of a task: %w", err)
	}
	if relay != "" && s.emitted != nil {
		tx.AfterCommit(func() { s.emitted(a.id) })
	}
	return s.emit(ctx, tx, a, event.TaskOverdue, t.VehicleID, t.SubaccountID, a.now, eventData{Task: t.doc})
}

// pastTime reports whether the due time of the task has come.
func (t *Task) pastTime(now time.Time) bool {
	return !t.DueAt.Std().IsZero() && !t.DueAt.Std().After(now)
}

// pastDistance reports whether the vehicle of the task, or nil, has reached the due odometer.
func (t *Task) pastDistance(v *Vehicle) bool {
	return t.DueOdometerMeters != nil && v != nil && v.OdometerMeters != nil && *v.OdometerMeters >= *t.DueOdometerMeters
}

// taskNotice is the stored form of a notice to write.
type taskNotice struct {
	Key string `json:"key"`
}

// OverdueTask is a task that became overdue, with the notice that the helpdesk writes for it.
type OverdueTask struct {
	Task        Task
	Key         string // of the notice: another one for each due time
	VehicleCode string // empty if the vehicle was deleted

	relay string // as stored
}

// WaitingTasks returns the organizations with overdue tasks that the helpdesk has to see.
func (s *Service) WaitingTasks(ctx context.Context) ([]string, error) {
	list, err := db.All(ctx, s.db, scanID, "SELECT DISTINCT organization_id FROM tasks WHERE relay IS NOT NULL ORDER BY organization_id")
	if err != nil {
		return nil, fmt.Errorf("look for overdue tasks: %w", err)
	}
	return list, nil
}

// NextOverdueTasks returns the next overdue tasks of an organization that the helpdesk has to see,
// at most limit, in the order of their ids.
func (s *Service) NextOverdueTasks(ctx context.Context, organizationID string, limit int) ([]OverdueTask, error) {
	list, err := db.All(ctx, s.db, func(row db.Row) (o OverdueTask, err error) {
		var vehicle []byte
		if err := row.Scan(&o.Task.revision, &o.Task.doc, &o.relay, &vehicle); err != nil {
			return o, err
		}
		var notice taskNotice
		if err := json.Unmarshal([]byte(o.relay), &notice); err != nil {
			return o, fmt.Errorf("decode the notice of a task: %w", err)
		}
		o.Key = notice.Key
		if vehicle != nil {
			var v struct{ Code string }
			if err := json.Unmarshal(vehicle, &v); err != nil {
				return o, fmt.Errorf("decode the vehicle of a task: %w", err)
			}
			o.VehicleCode = v.Code
		}
		return o, json.Unmarshal(o.Task.doc, &o.Task)
	}, `SELECT t.revision, t.doc, t.relay, v.doc FROM tasks t LEFT JOIN vehicles v ON v.organization_id = t.organization_id AND v.id = t.vehicle_id
		WHERE t.organization_id = $1 AND t.relay IS NOT NULL ORDER BY t.id LIMIT $2`, organizationID, limit)
	if err != nil {
		return nil, fmt.Errorf("read overdue tasks: %w", err)
	}
	return list, nil
}

// OverdueTaskRelayed notes that the helpdesk has seen an overdue task. A notice for a later due time,
// which came since, stays.
func (s *Service) OverdueTaskRelayed(ctx context.Context, organizationID string, o *OverdueTask) error {
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		return tx.Queue(ctx, "UPDATE tasks SET relay = NULL WHERE organization_id = $1 AND id = $2 AND relay = $3", organizationID, o.Task.ID, o.relay)
	})
	if err != nil {
		return fmt.Errorf("note that an overdue task is relayed: %w", err)
	}
	return nil
}
