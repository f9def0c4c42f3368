//go:build cgo

package experiment

import (
	"bytes"
	"context"
	"encoding/json"
	"runtime"
	"time"
)

// Variant is the variant of one flag.
type Variant struct {
	// Value is a text; JSON if the service sent something else, empty if it sent nothing.
	Value string `json:"value,omitempty"`
	// Payload is what encoding/json makes of the variant's payload; nil if there is none. Numbers are
	// float64; DecodePayload reads them exactly.
	Payload interface{} `json:"payload,omitempty"`
	// Key is empty if the service sent none.
	Key string `json:"key,omitempty"`
	// Metadata is what the service tells of the variant, like "default" and "segmentName".
	Metadata map[string]interface{} `json:"metadata,omitempty"`

	payload []byte
}

// DecodePayload reads the payload as the service sent it into a value of yours, as json.Unmarshal does.
// It does nothing if there is no payload.
func (v Variant) DecodePayload(into any) error {
	if len(v.payload) == 0 {
		return nil
	}
	return json.Unmarshal(v.payload, into)
}

// decoders has room for as many documents as are decoded at once of those that take long. When the time of
// one's fetch is over it is left behind: encoding/json cannot be stopped. No more than these are.
var decoders = make(chan struct{}, runtime.GOMAXPROCS(0))

// decodedBy is decoded if that ends in time; false if the time or the context ends before.
func decodedBy(ctx context.Context, ends time.Time, data []byte) (value any, inTime bool) {
	if len(data) <= pieceBytes {
		return decoded(data), true
	}
	timer := time.NewTimer(time.Until(ends))
	defer timer.Stop()
	done := make(chan any, 1)
	select {
	case decoders <- struct{}{}:
		go func() {
			defer func() { <-decoders }()
			done <- decoded(data)
		}()
	case <-timer.C:
		return nil, false
	case <-ctx.Done():
		return nil, false
	}
	select {
	case value := <-done:
		return value, true
	case <-timer.C:
		return nil, false
	case <-ctx.Done():
		return nil, false
	}
}

// decoded reads JSON that the library has found to be valid, or nothing. It is told of no type, not even a
// map: encoding/json would then make each element by reflection. A number that float64 cannot hold, like
// 1e999, costs its document that type, not the fetch its success.
func decoded(data []byte) (value any) {
	if len(data) == 0 || json.Unmarshal(data, &value) == nil {
		return value
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	_ = decoder.Decode(&value)
	return value
}

// isDeployed tells whether the variant is deployed, and not the default of its flag.
func isDeployed(v Variant) bool {
	isDefault, _ := v.Metadata["default"].(bool)
	deployed, known := v.Metadata["deployed"].(bool)
	return !isDefault && (deployed || !known)
}
