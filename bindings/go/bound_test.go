package experiment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// answering is a script that answers with that body.
func answering(body string) string {
	return fmt.Sprintf(`{"keep": "nothing", "answers": [{"body": %s}]}`, must(json.Marshal(body)))
}

const largest = 8 << 20 // what the library reads of an answer

// manyVariants is an answer of so many of them.
func manyVariants(count int) string {
	var body strings.Builder
	for i := range count {
		fmt.Fprintf(&body, `,"f%06d":{"key":"on","value":"on","payload":{"n":1}}`, i)
	}
	return "{" + body.String()[1:] + "}"
}

// largeAnswers are those that take the longest to make objects of.
func largeAnswers() map[string]string {
	lists := "[" + strings.TrimSuffix(strings.Repeat("[],", (largest-64)/3), ",") + "]"
	numbers := "[" + strings.TrimSuffix(strings.Repeat("1,", (largest-64)/2), ",") + "]"
	return map[string]string{
		"138 000 variants":                 manyVariants(138_000),
		"a payload of 2.8 million lists":   `{"f":{"key":"on","payload":` + lists + `}}`,
		"a payload of 4.2 million numbers": `{"f":{"key":"on","payload":` + numbers + `}}`,
		"metadata of 4.2 million numbers":  `{"f":{"key":"on","metadata":{"n":` + numbers + `}}}`,
	}
}

func TestAFetchIsOverWithinItsBoundHoweverManyObjectsItsAnswerIs(t *testing.T) {
	const bound = 300 * time.Millisecond
	for name, body := range largeAnswers() {
		t.Run(name, func(t *testing.T) {
			service := play(t, answering(body))
			calls := map[string]func() (map[string]Variant, error){
				"timeout":  func() (map[string]Variant, error) { return open(t, service, Config{FetchTimeout: bound}).FetchV2(nil) },
				"filtered": func() (map[string]Variant, error) { return open(t, service, Config{FetchTimeout: bound}).Fetch(nil) },
				"context": func() (map[string]Variant, error) {
					ctx, cancel := context.WithTimeout(context.Background(), bound)
					defer cancel()
					return open(t, service, Config{}).FetchV2WithContext(nil, ctx)
				},
			}
			for name, call := range calls {
				began := time.Now()
				variants, err := call()
				took := time.Since(began)
				t.Logf("%s: %d variants, %v after %v", name, len(variants), err, took)
				if took > bound+late {
					t.Errorf("%s: came back after %v, not %v", name, took, bound)
				}
				if (err == nil) != (len(variants) > 0) {
					t.Errorf("%s: %d variants with %v", name, len(variants), err)
				}
				var failure *FetchError
				if err != nil && (!errors.As(err, &failure) || failure.Status != StatusTimeout || failure.Phase != PhaseBody || !failure.Retryable) {
					t.Errorf("%s: %#v is no timeout of the body", name, err)
				}
			}
		})
	}
}

func TestATimeoutOfMakingObjectsSaysSo(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 0)
	defer cancel()
	err := unmade(ctx, Report{Attempts: 1})
	isAll(t, err, context.DeadlineExceeded)
	if !strings.Contains(err.Message, "making its objects took longer than the timeout allows") || err.Attempts != 1 {
		t.Errorf("%+v does not say what took so long", err)
	}
}

// countedContext is canceled once it has been asked so many times.
type countedContext struct {
	context.Context
	left *atomic.Int32
}

func (c countedContext) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

func TestCancelingTheContextEndsTheMakingOfObjects(t *testing.T) {
	client := open(t, play(t, answering(manyVariants(4*pieceVariants))), Config{})
	var asked atomic.Int32
	asked.Store(3) // before the fetch, and at each piece
	err := failure(t, time.Minute, func() (map[string]Variant, error) {
		return client.FetchV2WithContext(nil, countedContext{context.Background(), &asked})
	})
	isAll(t, err, context.Canceled)
	if err.Status != StatusCanceled || err.Attempts != 1 {
		t.Errorf("%+v is no cancellation", err)
	}
}

func TestVariantsAreAllThereInPiecesOfWhateverSize(t *testing.T) {
	const count = 2*pieceVariants + 1
	large := strings.Repeat("x", pieceBytes)
	var body strings.Builder
	for i := range count {
		payload := `"small"`
		if i%100 == 7 {
			payload = fmt.Sprintf(`{"large":"%s"}`, large)
		}
		fmt.Fprintf(&body, `,"f%d":{"key":"k%d","payload":%s,"metadata":{"n":%d}}`, i, i, payload, i)
	}
	variants, err := open(t, play(t, answering("{"+body.String()[1:]+"}")), Config{}).FetchV2(nil)
	if err != nil || len(variants) != count {
		t.Fatalf("%d of %d variants: %v", len(variants), count, err)
	}
	for i := range count {
		variant := variants[fmt.Sprintf("f%d", i)]
		want := any("small")
		if i%100 == 7 {
			variant.Payload, want = variant.Payload.(map[string]any)["large"], large
		}
		if variant.Key != fmt.Sprintf("k%d", i) || variant.Payload != want || variant.Metadata["n"] != float64(i) {
			t.Fatalf("variant %d is %+v", i, variant)
		}
	}
}

func TestNoMoreDocumentsAreLeftBehindThanThereAreDecoders(t *testing.T) {
	for range cap(decoders) {
		decoders <- struct{}{}
	}
	defer func() {
		for range cap(decoders) {
			<-decoders
		}
	}()
	payload := []byte(`"` + strings.Repeat("x", pieceBytes) + `"`)
	if _, inTime := decodedBy(context.Background(), time.Now().Add(10*time.Millisecond), payload); inTime {
		t.Error("decoded beside all decoders")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, inTime := decodedBy(ctx, time.Now().Add(time.Hour), payload); inTime {
		t.Error("decoded beside all decoders for a context that has ended")
	}
	if value, inTime := decodedBy(ctx, time.Now(), []byte("7")); !inTime || value != 7.0 {
		t.Errorf("a small document is not decoded at once: %v", value)
	}
}
