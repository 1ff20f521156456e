package fleetapi_test

import (
	"context"
	"encoding/base64"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/queue"
	"github.com/kickstand-dev/kickstand/internal/quota"
	"github.com/kickstand-dev/kickstand/internal/quota/quotatest"
)

// A task that is sent back as it was read is unchanged, and its photo is read as it was sent.
func TestTaskRoundTrip(t *testing.T) {
	p := newRig(t).live.tenant(t, ours)
	task := p.task(fields{"checklist": []fields{{"text": "Brakes", "done": true}, {"text": "Lights"}}, "recurrence": fields{"days": 90}, "takes_vehicle_out": true, "metadata": fields{"depot": "north"}})
	path := "/tasks/" + task.text("id")
	p.Do("POST", path+"/photos", jsonOf(t, fields{"photo": picture}))
	before := p.Get(path)
	again := p.Do("PUT", path, before.Body, "If-Match: "+before.Header.Get("Etag"))
	if again.Status != 200 || again.Body != before.Body {
		t.Fatalf("sent back: %d\n got %s\nwant %s", again.Status, again.Body, before.Body)
	}
	refused(t, "a text as a photo", p.Do("POST", path+"/photos", `{"photo":"bm8="}`), 422, "validation_failed", "#/photo invalid_format")
	refused(t, "no base64", p.Do("POST", path+"/photos", `{"photo":"***"}`), 422, "validation_failed", "#/photo invalid_format")
	var read struct{ Photos []struct{ ID string } }
	p.Get(path).JSON(&read)
	want, err := base64.StdEncoding.DecodeString(picture)
	if err != nil {
		t.Fatal(err)
	}
	photo := p.Get(path + "/photos/" + read.Photos[0].ID)
	if photo.Body != string(want) || photo.Header.Get("Content-Type") != "image/png" || photo.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("a photo: %d %v", photo.Status, photo.Header)
	}
	done := send(t, p.Client, "PUT", path, `{"state":"done"}`, 200)
	if back, _ := done["vehicle_return"].(map[string]any); back["returned"] != true || done.text("next_task_id") == "" {
		t.Errorf("done: %v", done)
	}
}

// A photo beyond the organization's storage is refused, and room comes back with each that is deleted.
func TestPhotoQuota(t *testing.T) {
	r := newRig(t)
	p := r.live.tenant(t, ours)
	size := int64(base64.StdEncoding.DecodedLen(len(picture)) - strings.Count(picture, "="))
	r.live.surface.Quotas = quotatest.Open(r.desk, queue.Open(r.desk, queue.Config{}), quota.Limits{quota.Storage: 2*size + 1}, func(c *quota.Config) {
		c.Elsewhere = p.photosElsewhere
	})
	photos := "/tasks/" + p.task().text("id") + "/photos"
	body := jsonOf(t, fields{"photo": picture})
	send(t, p.Client, "POST", photos, body, 200)
	stored := send(t, p.Client, "POST", photos, body, 200)["photos"].([]any)
	refused(t, "a third photo", p.Do("POST", photos, body), 403, "quota_exceeded")
	var notices int
	if err := r.desk.QueryRow(t.Context(), "SELECT count(*) FROM jobs WHERE kind = 'quota.notice'").Scan(&notices); err != nil || notices != 1 {
		t.Errorf("%d notices, %v; want one, of 80 %%", notices, err)
	}
	refused(t, "a photo of no task", p.Do("POST", "/tasks/tsk_none/photos", body), 404, "not_found")
	refused(t, "no base64", p.Do("POST", photos, `{"photo":"***"}`), 422, "validation_failed", "#/photo invalid_format")
	send(t, p.Client, "DELETE", photos+"/"+stored[0].(map[string]any)["id"].(string), "", 204)
	send(t, p.Client, "POST", photos, body, 200)
	if n, err := p.photoBytes(t.Context(), ours); err != nil || n != 2*size {
		t.Errorf("stored %d bytes, %v; want %d", n, err, 2*size)
	}
}

func (p *tenant) photoBytes(ctx context.Context, organizationID string) (int64, error) {
	return p.fleet.PhotoBytes(ctx, p.db, organizationID)
}

// photosElsewhere is photoBytes for [quota.Config].
func (p *tenant) photosElsewhere(ctx context.Context, organizationID string, except *db.DB) (int64, error) {
	if except == p.db {
		return 0, nil
	}
	return p.photoBytes(ctx, organizationID)
}

// TestPhotosAtOnce: of photos at the same time, as many are stored as the storage permits.
func TestPhotosAtOnce(t *testing.T) {
	r := newRig(t)
	p := r.live.tenant(t, ours)
	size := int64(base64.StdEncoding.DecodedLen(len(picture)) - strings.Count(picture, "="))
	r.live.surface.Quotas = quotatest.Open(r.desk, queue.Open(r.desk, queue.Config{}), quota.Limits{quota.Storage: 3 * size}, func(c *quota.Config) {
		c.Elsewhere = p.photosElsewhere
	})
	tasks := []string{p.task().text("id"), p.task().text("id"), p.task().text("id"), p.task().text("id")}
	body := jsonOf(t, fields{"photo": picture})
	var stored atomic.Int64
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			if a := p.Do("POST", "/tasks/"+tasks[i%4]+"/photos", body); a.Status == 200 {
				stored.Add(1)
			} else {
				refused(t, "a photo too many", a, 403, "quota_exceeded")
			}
		})
	}
	all.Wait()
	if n, err := p.photoBytes(t.Context(), ours); err != nil || n != 3*size || stored.Load() != 3 {
		t.Errorf("%d photos were accepted, and %d bytes stored, %v; want 3, %d", stored.Load(), n, err, 3*size)
	}
}

// Keys of a subaccount see and create tasks of its vehicles only.
func TestTaskScope(t *testing.T) {
	p := newRig(t).live.tenant(t, ours)
	p.task()
	elsewhere := p.As(p.key(ours, apikey.Permissions{Level: apikey.Admin}, p.other.ID))
	if list := send(t, elsewhere, "GET", "/tasks", "", 200); len(list["data"].([]any)) != 0 {
		t.Errorf("another subaccount lists %v", list)
	}
	refused(t, "a task of a vehicle out of scope", elsewhere.Do("POST", "/tasks", jsonOf(t, fields{"vehicle_id": p.vehicle().text("id"), "title": "Check"})), 403, "subaccount_out_of_scope")
}
