package quota

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// unlimited is the text of [Unlimited].
const unlimited = "unlimited"

// units are the units of storage, each 1000 times the one before.
var units = [...]string{"B", "kB", "MB", "GB", "TB"}

// ParseLimit parses a limit: "unlimited", a number, or for storage a number of bytes with a unit,
// such as 500MB or 1.5GB (powers of 1000).
func (q Quota) ParseLimit(text string) (int64, error) {
	if text == unlimited {
		return Unlimited, nil
	}
	if q == Storage {
		return parseBytes(text)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is not a number such as 500, nor %s", text, unlimited)
	}
	return n, nil
}

func parseBytes(text string) (int64, error) {
	number := strings.TrimRight(text, "kKMGTBb")
	unit := strings.ToLower(text[len(number):])
	at := slices.IndexFunc(units[:], func(u string) bool { return strings.ToLower(u) == unit })
	n, err := strconv.ParseFloat(number, 64)
	bytes := n * math.Pow(1000, float64(max(at, 0)))
	if err != nil || at < 0 && unit != "" || strings.Trim(number, "0123456789.") != "" || bytes >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is not a size such as 500MB or 1.5GB, nor %s", text, unlimited)
	}
	return int64(math.Round(bytes)), nil
}

// Amount returns a number of what is limited in words: "500 messages", "1.5 GB".
func (q Quota) Amount(n int64) string {
	switch {
	case n == Unlimited:
		return unlimited
	case q == Storage:
		return formatBytes(n)
	case n == 1:
		return "1 " + strings.TrimSuffix(string(q), "s")
	}
	return fmt.Sprint(n, " ", q)
}

// formatBytes formats a size with at most one decimal, rounded down, so that a limit looks used up
// only if it is.
func formatBytes(n int64) string {
	unit, size := 0, int64(1)
	for n/size >= 1000 && unit < len(units)-1 {
		unit, size = unit+1, size*1000
	}
	text := strconv.FormatInt(n/size, 10)
	if tenth := n % size / max(size/10, 1); unit > 0 && tenth > 0 {
		text += "." + strconv.FormatInt(tenth, 10)
	}
	return text + " " + units[unit]
}

// ParsePlans parses limits such as "messages=10000", for all plans, and "free.storage=1GB", for one.
// names are the plans.
func ParsePlans(list []string, names ...string) (Plans, error) {
	plans := make(Plans)
	for _, item := range list {
		name, text, found := strings.Cut(strings.TrimSpace(item), "=")
		if !found {
			return nil, fmt.Errorf("%q is not [PLAN.]QUOTA=LIMIT, such as free.messages=500", item)
		}
		plan, quota, ofPlan := strings.Cut(name, ".")
		if !ofPlan {
			plan, quota = "", name
		}
		q := Quota(quota)
		if !slices.Contains(All[:], q) {
			return nil, fmt.Errorf("%q is not one of storage, messages, webhooks", quota)
		}
		if ofPlan && !slices.Contains(names, plan) {
			return nil, fmt.Errorf("%q is not one of the plans %s", plan, strings.Join(names, ", "))
		}
		if _, twice := plans[plan][q]; twice {
			return nil, fmt.Errorf("%s is there twice", name)
		}
		limit, err := q.ParseLimit(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if plans[plan] == nil {
			plans[plan] = make(Limits)
		}
		plans[plan][q] = limit
	}
	return plans, nil
}
