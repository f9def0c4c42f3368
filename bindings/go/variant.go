package experiment

import (
	"bytes"
	"encoding/json"
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

// newVariant keeps `payload`, but not `metadata`.
func newVariant(key, value string, payload, metadata []byte) Variant {
	variant := Variant{Key: key, Value: value, Payload: decoded(payload), payload: payload}
	variant.Metadata, _ = decoded(metadata).(map[string]interface{})
	return variant
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
func (v Variant) isDeployed() bool {
	isDefault, _ := v.Metadata["default"].(bool)
	deployed, known := v.Metadata["deployed"].(bool)
	return !isDefault && (deployed || !known)
}
