package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/kickstand-dev/kickstand/internal/channel/marketplace"
)

// demoTopic is the topic of the demo's marketplace.
const demoTopic = "arn:aws:sns:us-east-1:123456789012:kickstand-demo"

// marketplaceTrigger signs with a test key in place of the notification service's. The
// server must be configured to accept it.
func marketplaceTrigger() trigger {
	return trigger{
		name: "marketplace", secret: "marketplace-test-key", newSecret: marketplace.NewTestKey,
		events:  []string{"cancellation", "status", "return", "return_status", "unsubscribed"},
		request: (*triggerCmd).marketplace,
	}
}

// marketplace builds a notification about the order with the id --from. --text is the
// reason, or the state.
func (t *triggerCmd) marketplace(s triggerRequest) (*http.Request, error) {
	key, err := marketplace.ParseTestKey(s.secret)
	if err != nil {
		return nil, usageError{fmt.Errorf("--marketplace-test-key: it %w", err)}
	}
	now := time.Now().UTC()
	at := now.Format(time.RFC3339)
	order := firstNonEmpty(t.From, "903-1234567-7654321")
	kind, name := "ORDER_CHANGE", "OrderChangeNotification"
	item := map[string]any{"OrderItemId": "O1", "SellerSKU": "HELMET-M", "Quantity": 1, "IsBuyerRequestedCancel": s.event == "cancellation"}
	var about map[string]any
	switch s.event {
	case "return", "return_status":
		kind, name = "RETURN_CREATED", "ReturnNotification"
		about = map[string]any{
			"OrderId": order, "ReturnId": "R-" + order, "Status": "Requested", "Reason": firstNonEmpty(t.Text, "It does not fit"),
			"Items": []any{map[string]any{"Sku": "HELMET-M", "Title": "Helmet, M", "Quantity": 1}},
		}
		if s.event == "return_status" {
			kind, about = "RETURN_STATUS_CHANGE", map[string]any{"OrderId": order, "ReturnId": "R-" + order, "Status": firstNonEmpty(t.Text, "Received")}
		}
	default:
		change, status, reason := "BuyerRequestedChange", "Unshipped", firstNonEmpty(t.Text, "Buyer Requested Cancel")
		if s.event == "status" {
			change, status, reason = "OrderStatusChange", firstNonEmpty(t.Text, "Shipped"), ""
		}
		about = map[string]any{
			"NotificationLevel": "OrderLevel", "SellerId": "A3SELLER", "AmazonOrderId": order, "OrderChangeType": change,
			"OrderChangeTrigger": map[string]any{"TimeOfOrderChange": at, "ChangeReason": reason},
			"Summary":            map[string]any{"MarketplaceId": "ATVPDKIKX0DER", "OrderStatus": status, "OrderItems": []any{item}},
		}
	}
	inner, err := json.Marshal(map[string]any{
		"NotificationVersion": "1.0", "NotificationType": kind, "PayloadVersion": "1.0", "EventTime": at, "Payload": map[string]any{name: about},
		"NotificationMetadata": map[string]any{"NotificationId": randomHex(16), "PublishTime": at},
	})
	if err != nil {
		return nil, err
	}
	topic := firstNonEmpty(t.To, demoTopic)
	message := map[string]any{
		"Type": "Notification", "MessageId": randomHex(16), "TopicArn": topic, "Message": string(inner),
		"Timestamp": now.Format("2006-01-02T15:04:05.000Z"), "SignatureVersion": "2",
	}
	if s.event == "unsubscribed" {
		message["Type"], message["Message"], message["Token"] = "UnsubscribeConfirmation", "You have chosen to deactivate the subscription.", randomHex(32)
		message["SubscribeURL"] = "https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn=" + topic + "&Token=1"
	}
	body, err := json.Marshal(message)
	if err != nil {
		return nil, err
	}
	return s.post("/api/marketplace/webhook", "text/plain; charset=UTF-8", key.Sign(body))
}
