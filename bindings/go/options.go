//go:build cgo

package experiment

// Tracking tells the service whether to record an event. Its zero value leaves that to the service.
type Tracking int

const (
	// NoTrack asks the service not to record it.
	NoTrack Tracking = iota - 1
	// ServiceDecides is not to choose: the service tracks assignments, and does not track exposures.
	ServiceDecides
	// Track asks the service to record it.
	Track
)

// FetchOptions are the options of one fetch. The zero value, and nil, choose nothing.
type FetchOptions struct {
	// TracksAssignment is whether the service records the assignment.
	TracksAssignment Tracking
	// TracksExposure is whether the service records an exposure.
	TracksExposure Tracking
	// FlagKeys are the flags to evaluate; all of them if there are none.
	FlagKeys []string
	// Report, if there is one, is filled in when the fetch is over, however it ended. It is for one
	// fetch at a time.
	Report *Report
}
