package experiment

import (
	"encoding/json"
	"maps"
	"slices"
)

// User is what is known of a user; the service decides by it. Empty fields are not sent. A fetch never
// changes its user, so one may be used by several at once.
type User struct {
	UserId             string `json:"user_id,omitempty"`
	DeviceId           string `json:"device_id,omitempty"`
	Country            string `json:"country,omitempty"`
	Region             string `json:"region,omitempty"`
	Dma                string `json:"dma,omitempty"`
	City               string `json:"city,omitempty"`
	Language           string `json:"language,omitempty"`
	Platform           string `json:"platform,omitempty"`
	Version            string `json:"version,omitempty"`
	Os                 string `json:"os,omitempty"`
	DeviceManufacturer string `json:"device_manufacturer,omitempty"`
	DeviceBrand        string `json:"device_brand,omitempty"`
	DeviceModel        string `json:"device_model,omitempty"`
	Carrier            string `json:"carrier,omitempty"`
	IpAddress          string `json:"ip_address,omitempty"`
	// Library is what the service is told to be asked by; libexperiment-go and its version by default.
	Library string `json:"library,omitempty"`
	// UserProperties are of any kind that package encoding/json can write.
	UserProperties  map[string]interface{}            `json:"user_properties,omitempty"`
	GroupProperties map[string]map[string]interface{} `json:"group_properties,omitempty"`
	Groups          map[string][]string               `json:"groups,omitempty"`
	CohortIds       CohortIds                         `json:"cohort_ids,omitempty"`
	GroupCohortIds  GroupCohortIds                    `json:"group_cohort_ids,omitempty"`
	// Other are fields that the service knows and this struct does not, by their JSON names. Where it
	// does know one, its own counts.
	Other map[string]interface{} `json:"-"`
}

// CohortIds is a set of cohorts. It is sent as a list, in order.
type CohortIds map[string]struct{}

// GroupCohortIds are the cohorts of a user's groups, by the group's type and name. They are sent as
// lists, in order.
type GroupCohortIds map[string]map[string]map[string]struct{}

// AddGroupCohortIds sets the cohorts of one group.
func (u *User) AddGroupCohortIds(groupType, groupName string, cohortIds map[string]struct{}) {
	if u.GroupCohortIds == nil {
		u.GroupCohortIds = GroupCohortIds{}
	}
	if u.GroupCohortIds[groupType] == nil {
		u.GroupCohortIds[groupType] = map[string]map[string]struct{}{}
	}
	u.GroupCohortIds[groupType][groupName] = cohortIds
}

// MarshalJSON writes the list that the service reads.
func (c CohortIds) MarshalJSON() ([]byte, error) {
	return json.Marshal(slices.Sorted(maps.Keys(c)))
}

// UnmarshalJSON reads such a list.
func (c *CohortIds) UnmarshalJSON(data []byte) error {
	var list []string
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	*c = make(CohortIds, len(list))
	for _, id := range list {
		(*c)[id] = struct{}{}
	}
	return nil
}

// MarshalJSON writes the lists that the service reads.
func (g GroupCohortIds) MarshalJSON() ([]byte, error) {
	lists := make(map[string]map[string]CohortIds, len(g))
	for groupType, groups := range g {
		lists[groupType] = make(map[string]CohortIds, len(groups))
		for name, ids := range groups {
			lists[groupType][name] = ids
		}
	}
	return json.Marshal(lists)
}

// UnmarshalJSON reads such lists.
func (g *GroupCohortIds) UnmarshalJSON(data []byte) error {
	var lists map[string]map[string]CohortIds
	if err := json.Unmarshal(data, &lists); err != nil {
		return err
	}
	var user User
	for groupType, groups := range lists {
		for name, ids := range groups {
			user.AddGroupCohortIds(groupType, name, ids)
		}
	}
	*g = user.GroupCohortIds
	return nil
}

// MarshalJSON writes what the service reads.
func (u User) MarshalJSON() ([]byte, error) { return u.encode() }

// encode is the user as JSON; nothing for one of whom nothing is known.
func (u *User) encode() ([]byte, error) {
	if u == nil {
		return nil, nil
	}
	type fields User // without MarshalJSON
	encoded, err := json.Marshal((*fields)(u))
	if err != nil || len(u.Other) == 0 {
		return encoded, err
	}
	all := maps.Clone(u.Other)
	var known map[string]json.RawMessage
	if err := json.Unmarshal(encoded, &known); err != nil {
		return nil, err
	}
	for name, value := range known {
		all[name] = value
	}
	return json.Marshal(all)
}
