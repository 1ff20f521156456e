package audit

import (
	"context"
	"log/slog"
)

// LogSecurityEvent writes a security event to the server's log at level Warn: the message
// "security" with event, address, request_id and attrs. event is the action of the audit
// log if there is one: "sign_in.refused". attrs never contain a secret. Call it once per
// event, where it is detected.
func LogSecurityEvent(ctx context.Context, log *slog.Logger, event string, attrs ...slog.Attr) {
	if log == nil || !log.Enabled(ctx, slog.LevelWarn) {
		return
	}
	s := SourceOf(ctx)
	all := make([]slog.Attr, 0, 4+len(attrs))
	all = append(all, slog.String("event", event))
	all = append(all, slog.String("address", s.IP()), slog.String("request_id", s.RequestID))
	if s.Actor.ID != "" {
		all = append(all, slog.String("actor", string(s.Actor.Type)+":"+s.Actor.ID))
	}
	log.LogAttrs(ctx, slog.LevelWarn, "security", append(all, attrs...)...)
}
