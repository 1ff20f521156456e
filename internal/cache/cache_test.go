package cache_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kickstand-dev/kickstand/internal/cache"
)

func TestLeastRecentlyUsedIsEvicted(t *testing.T) {
	c := cache.New[string, int](2, 0)
	c.Put("a", 1, c.Start())
	c.Put("b", 2, c.Start())
	c.Get("a")
	c.Put("c", 3, c.Start())
	for key, want := range map[string]bool{"a": true, "b": false, "c": true} {
		if _, ok := c.Get(key); ok != want {
			t.Errorf("%s is cached: %v", key, ok)
		}
	}
}

func TestSizeBoundsTheCache(t *testing.T) {
	c := cache.NewSized[string](10, 0, func(s string) int { return len(s) })
	put := func(key, value string) { c.Put(key, value, c.Start()) }
	check := func(step string, want ...string) {
		t.Helper()
		var got []string
		for _, key := range []string{"a", "b", "c", "d"} {
			if _, ok := c.Get(key); ok {
				got = append(got, key)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v are cached, want %v", step, got, want)
		}
	}
	put("a", "1234")
	put("b", "1234")
	put("a", "12") // replaced: 6 in total
	put("c", "1234")
	check("full", "a", "b", "c")
	put("d", "12345") // evicts a and b
	check("evicted", "c", "d")
	put("c", "12345678901")
	check("too large", "d")
	c.Clear()
	put("a", "12345")
	put("b", "12345")
	check("cleared", "a", "b")
}

func TestValuesExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cache.New[string, int](10, time.Second)
		start := c.Start()
		time.Sleep(600 * time.Millisecond)
		c.Put("a", 1, start) // its age counts from the start of the read
		time.Sleep(399 * time.Millisecond)
		if v, ok := c.Get("a"); !ok || v != 1 {
			t.Errorf("before its time: %d, %v", v, ok)
		}
		time.Sleep(time.Millisecond)
		if v, ok := c.Get("a"); ok || v != 0 {
			t.Errorf("after its time: %d, %v", v, ok)
		}
		if v, stored := c.GetOrPut("a", 2); !stored || v != 2 {
			t.Errorf("put again: %d, %v", v, stored)
		}
		if v, stored := c.GetOrPut("a", 3); stored || v != 2 {
			t.Errorf("put a third time: %d, %v", v, stored)
		}
	})
}

func TestReadBeforeAnInvalidationIsNotStored(t *testing.T) {
	for name, invalidate := range map[string]func(*cache.Cache[string, int]){
		"delete": func(c *cache.Cache[string, int]) { c.Delete("a") },
		"clear":  func(c *cache.Cache[string, int]) { c.Clear() },
	} {
		c := cache.New[string, int](10, 0)
		v, err := c.Load("a", func() (int, error) {
			invalidate(c)
			return 1, nil
		})
		if v != 1 || err != nil {
			t.Errorf("%s: the read gives %d, %v", name, v, err)
		}
		if _, ok := c.Get("a"); ok {
			t.Errorf("%s: a value read before it is cached", name)
		}
		c.Put("a", 2, c.Start())
		if v, ok := c.Get("a"); !ok || v != 2 {
			t.Errorf("%s: a value read after it: %d, %v", name, v, ok)
		}
	}
}

func TestLoad(t *testing.T) {
	c := cache.New[string, int](10, 0)
	failed := errors.New("no database")
	if _, err := c.Load("a", func() (int, error) { return 7, failed }); !errors.Is(err, failed) {
		t.Errorf("error %v", err)
	}
	reads := 0
	for range 2 {
		v, err := c.Load("a", func() (int, error) { reads++; return 8, nil })
		if v != 8 || err != nil {
			t.Errorf("value %d, %v", v, err)
		}
	}
	if reads != 1 {
		t.Errorf("%d reads", reads)
	}
}

func TestConcurrentUse(t *testing.T) {
	c := cache.NewSized[int](50, 0, func(int) int { return 3 })
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for i := range 1000 {
				key := (i * (w + 1)) % 40
				if v, _ := c.Load(key, func() (int, error) { return key, nil }); v != key {
					t.Errorf("key %d has %d", key, v)
				}
				if i%100 == 0 {
					c.Delete(key)
				}
			}
		})
	}
	all.Wait()
}

// A cached value costs no allocation.
func TestGetAllocatesNothing(t *testing.T) {
	c := cache.New[string, *int](10, time.Hour)
	c.Put("a", new(1), c.Start())
	if n := testing.AllocsPerRun(100, func() {
		if _, err := c.Load("a", func() (*int, error) { return new(2), nil }); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
