package marketplace

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/kickstand-dev/kickstand/internal/channel"
)

var (
	_ channel.TestKeySampler = (*Adapter)(nil)
	_ channel.KeySource      = (*Adapter)(nil)
)

// trialKey returns the key of this process's samples, which takes some time to generate.
var trialKey = sync.OnceValues(func() (*TestKey, error) {
	text, err := NewTestKey()
	if err != nil {
		return nil, err
	}
	return ParseTestKey(text)
})

// trialStore has the certificate of a test key only.
type trialStore struct{ key *TestKey }

// Fetch implements [CertificateStore].
func (trialStore) Fetch(context.Context, string) error { return nil }

// At implements [CertificateStore].
func (s trialStore) At(address string) *x509.Certificate {
	if region := certificateRegion(address); region == "" || address != testAddress(region) {
		return nil
	}
	return s.key.certificate
}

// Check implements [CertificateStore].
func (trialStore) Check(context.Context, string) error { return nil }

// SampleByTestKey implements [channel.TestKeySampler]: the cancellation of an order.
func (*Adapter) SampleByTestKey(s channel.Sample) (*channel.Request, channel.Adapter, error) {
	key, err := trialKey()
	if err != nil {
		return nil, nil, err
	}
	at := s.At.UTC().Format(time.RFC3339)
	inner, _ := json.Marshal(map[string]any{ // strings do not fail, here and below
		"NotificationVersion": "1.0", "NotificationType": "ORDER_CHANGE", "PayloadVersion": "1.0", "EventTime": at,
		"Payload": map[string]any{"OrderChangeNotification": map[string]any{
			"NotificationLevel": "OrderLevel", "AmazonOrderId": "903-0000000-0000000", "OrderChangeType": "BuyerRequestedChange",
			"OrderChangeTrigger": map[string]any{"TimeOfOrderChange": at, "ChangeReason": "Test"}, "Summary": map[string]any{"OrderStatus": "Unshipped"},
		}},
		"NotificationMetadata": map[string]any{"NotificationId": uuid.NewString(), "PublishTime": at},
	})
	body, _ := json.Marshal(map[string]string{
		"Type": typeNotification, "MessageId": uuid.NewString(), "TopicArn": s.Address, "Message": string(inner),
		"Timestamp": s.At.UTC().Format("2006-01-02T15:04:05.000Z"), "SignatureVersion": "2",
	})
	return s.NewRequest("text/plain; charset=UTF-8", key.Sign(body)), New(trialStore{key}), nil
}

// CheckKeySource implements [channel.KeySource].
func (a *Adapter) CheckKeySource(ctx context.Context, topic string) error {
	region := envelope{"TopicArn": topic}.region()
	host := "sns." + region + ".amazonaws.com"
	if strings.HasPrefix(topic, "arn:aws-cn:") {
		host += ".cn"
	}
	if err := a.certificates.Check(ctx, "https://"+host+"/"); err != nil {
		return fmt.Errorf("this server cannot fetch the certificates that verify messages, from %s: %w", host, err)
	}
	return nil
}

// Check implements [CertificateStore]. Every answer but a failure of the server shows that it can be
// reached.
func (c *Certificates) Check(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	resp, err := c.http.RoundTrip(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode >= 500 {
		return fmt.Errorf("it answered %s", resp.Status)
	}
	return nil
}
