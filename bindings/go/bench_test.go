package experiment

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"syscall"
	"testing"
	"time"
)

func BenchmarkFetch(b *testing.B) {
	client := open(b, play(b, forgetful), Config{})
	measure(b, 1, func() error {
		_, err := client.FetchV2(&User{UserId: "u"})
		return err
	})
}

func BenchmarkFetchWithContext(b *testing.B) {
	client := open(b, play(b, forgetful), Config{})
	measure(b, 1, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err := client.FetchV2WithContext(&User{UserId: "u"}, ctx)
		return err
	})
}

func BenchmarkFetchFromManyGoroutines(b *testing.B) {
	client := open(b, play(b, forgetful), Config{FetchPoolAcquireTimeout: NoLimit})
	measure(b, 32, func() error {
		_, err := client.FetchV2(&User{UserId: "u"})
		return err
	})
}

// What the same takes by net/http and encoding/json, as in the vendor's SDK, over as many connections.
func BenchmarkNetHTTP(b *testing.B) {
	fetch := byNetHTTP(play(b, forgetful).Url)
	measure(b, 1, fetch)
}

func BenchmarkNetHTTPFromManyGoroutines(b *testing.B) {
	fetch := byNetHTTP(play(b, forgetful).Url)
	measure(b, 32, fetch)
}

// measure also tells the processor's time that it took, of this process: the mock is another.
func measure(b *testing.B, goroutinesPerCPU int, fetch func() error) {
	if err := fetch(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetParallelism(goroutinesPerCPU)
	before := processorTime()
	b.ResetTimer()
	run := func(next func() bool) {
		for next() {
			if err := fetch(); err != nil {
				b.Error(err)
			}
		}
	}
	if goroutinesPerCPU == 1 {
		done := 0
		run(func() bool { done++; return done <= b.N })
	} else {
		b.RunParallel(func(pb *testing.PB) { run(pb.Next) })
	}
	b.ReportMetric(float64(processorTime()-before)/float64(b.N), "cpu-ns/op")
}

func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func byNetHTTP(url string) func() error {
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 8, MaxIdleConnsPerHost: 8}}
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		body := must(json.Marshal(&User{UserId: "u"}))
		request := must(http.NewRequestWithContext(ctx, "POST", url+"/sdk/v2/vardata?v=0", bytes.NewReader(body)))
		request.Header.Set("Authorization", "Api-Key key")
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		variants := map[string]Variant{}
		if err := json.NewDecoder(response.Body).Decode(&variants); err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, response.Body)
		return err
	}
}
