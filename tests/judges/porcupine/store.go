package main

import (
	"encoding/json"
	"slices"
	"strconv"
)

// A step of a transaction: an operation on a key.
//
//	op                       arguments  result
//	get, put                 value      the value or null; none
//	incr                     by         the sum
//	strlen                              a length
//	del, exists                         0 or 1
//	lpush, rpush             values     the new length
//	lrange, llen                        all elements; how many
//	sadd, srem               values     how many members are new, or gone
//	smembers, scard                     all members, sorted; how many
//	sismember                value      0 or 1
type step struct {
	Op     string   `json:"op"`
	Key    string   `json:"key"`
	Value  *string  `json:"value"`
	By     int64    `json:"by"`
	Values []string `json:"values"`
	// The client did not see the result.
	Blind bool `json:"blind"`
}

// What is at a key: a string, a list, or a sorted set; never an empty one of the latter two. Values are not changed once
// they are in a store.
type value struct {
	text     *string
	elements []string
}

// The present keys. A store is not changed: whatever changes something copies it.
type store map[string]value

func (a store) equals(b store) bool {
	if len(a) != len(b) {
		return false
	}
	for key, left := range a {
		right, present := b[key]
		if !present || (left.text == nil) != (right.text == nil) || !slices.Equal(left.elements, right.elements) {
			return false
		}
		if left.text != nil && *left.text != *right.text {
			return false
		}
	}
	return true
}

// Executes a transaction: whether its results are those that were seen, and the new store.
func (s store) execute(t transaction) (bool, store) {
	changed := false
	for index, step := range t.steps {
		old, present := s[step.Key]
		result, left, remains := step.execute(old, present)
		if seen := t.output[index]; seen != nil && *seen != text(result) {
			return false, s
		}
		if !step.writes() {
			continue
		}
		if !changed {
			s, changed = s.copy(), true
		}
		if remains {
			s[step.Key] = left
		} else {
			delete(s, step.Key)
		}
	}
	return true, s
}

func (s store) copy() store {
	copied := make(store, len(s)+1)
	for key, value := range s {
		copied[key] = value
	}
	return copied
}

// A result in its simplest JSON form.
func text(result any) string {
	bytes, err := json.Marshal(result)
	if err != nil {
		panic(err)
	}
	return string(bytes)
}

func (s step) writes() bool {
	return slices.Contains([]string{"put", "incr", "del", "lpush", "rpush", "sadd", "srem"}, s.Op)
}

func (s step) known() bool {
	reads := []string{"get", "strlen", "exists", "lrange", "llen", "smembers", "scard", "sismember"}
	return s.writes() || slices.Contains(reads, s.Op)
}

// The result, what is at the key afterwards, and whether anything is.
func (s step) execute(old value, present bool) (any, value, bool) {
	switch s.Op {
	case "get":
		return old.text, old, present
	case "put":
		return nil, value{text: s.Value}, s.Value != nil
	case "incr":
		sum := s.By
		if old.text != nil {
			number, err := strconv.ParseInt(*old.text, 10, 64)
			if err != nil {
				return "no number", old, present
			}
			sum += number
		}
		digits := strconv.FormatInt(sum, 10)
		return sum, value{text: &digits}, true
	case "strlen":
		if old.text == nil {
			return 0, old, present
		}
		return len(*old.text), old, present
	case "del":
		return count(present), value{}, false
	case "exists":
		return count(present), old, present
	case "lpush", "rpush":
		return s.push(old.elements)
	case "sadd", "srem":
		return s.change(old.elements)
	case "lrange", "smembers":
		return append([]string{}, old.elements...), old, present
	case "sismember":
		return count(s.Value != nil && slices.Contains(old.elements, *s.Value)), old, present
	default: // llen, scard
		return len(old.elements), old, present
	}
}

func (s step) push(old []string) (any, value, bool) {
	elements := slices.Clone(old)
	for _, pushed := range s.Values {
		if s.Op == "lpush" {
			elements = slices.Insert(elements, 0, pushed)
		} else {
			elements = append(elements, pushed)
		}
	}
	return len(elements), value{elements: elements}, len(elements) > 0
}

func (s step) change(old []string) (any, value, bool) {
	members, changes := slices.Clone(old), 0
	for _, member := range s.Values {
		at, found := slices.BinarySearch(members, member)
		switch {
		case s.Op == "sadd" && !found:
			members = slices.Insert(members, at, member)
			changes++
		case s.Op == "srem" && found:
			members = slices.Delete(members, at, at+1)
			changes++
		}
	}
	return changes, value{elements: members}, len(members) > 0
}

func count(holds bool) int {
	if holds {
		return 1
	}
	return 0
}
