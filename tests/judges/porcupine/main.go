// Judges with porcupine whether a history is strictly serializable: each transaction is one operation on the whole
// store, and must take effect at one moment between its call and its return.
//
// The input is what `history export --format porcupine` writes: a JSON object a line. Exit code 0: accepted; 1:
// refused; 2: no history, or not decided in time.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

// How long porcupine may search.
const timeout = 5 * time.Minute

// A line of the input. What was never answered returns after everything.
type line struct {
	Client int               `json:"client"`
	Call   int64             `json:"call"`
	Return int64             `json:"return"`
	Input  []step            `json:"input"`
	Output []json.RawMessage `json:"output"`
}

// A transaction: its steps, and what the client saw of each, in its simplest JSON form; nil where it saw nothing.
type transaction struct {
	steps  []step
	output []*string
}

func main() {
	if len(os.Args) != 2 {
		fail("usage: porcupine-judge FILE, where FILE is of `history export --format porcupine`")
	}
	operations, err := read(os.Args[1])
	if err != nil {
		fail(err.Error())
	}
	parts := partition(operations)
	result := porcupine.CheckOperationsTimeout(model(parts), operations, timeout)
	fmt.Printf("{\"result\": %q, \"transactions\": %d, \"parts\": %d}\n", result, len(operations), len(parts))
	switch result {
	case porcupine.Ok:
	case porcupine.Illegal:
		os.Exit(1)
	default:
		os.Exit(2)
	}
}

func fail(reason string) {
	fmt.Fprintln(os.Stderr, reason)
	os.Exit(2)
}

func read(path string) ([]porcupine.Operation, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var operations []porcupine.Operation
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 64<<20)
	for number := 1; scanner.Scan(); number++ {
		var parsed line
		if err := json.Unmarshal(scanner.Bytes(), &parsed); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		operation, err := parsed.operation()
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		operations = append(operations, operation)
	}
	return operations, scanner.Err()
}

func (l line) operation() (porcupine.Operation, error) {
	done := transaction{steps: l.Input, output: make([]*string, len(l.Input))}
	rest := l.Output
	for index, step := range l.Input {
		if !step.known() {
			return porcupine.Operation{}, fmt.Errorf("unknown operation %q", step.Op)
		}
		if step.Blind || step.Op == "put" {
			continue
		}
		if len(rest) == 0 {
			return porcupine.Operation{}, fmt.Errorf("the output has too few results")
		}
		var value any
		if err := json.Unmarshal(rest[0], &value); err != nil {
			return porcupine.Operation{}, err
		}
		seen := text(value)
		done.output[index], rest = &seen, rest[1:]
	}
	if len(rest) != 0 {
		return porcupine.Operation{}, fmt.Errorf("the output has too many results")
	}
	return porcupine.Operation{ClientId: l.Client, Input: done, Call: l.Call, Return: l.Return}, nil
}

// What porcupine is to execute. It judges each part by itself.
func model(parts [][]porcupine.Operation) porcupine.Model {
	return porcupine.Model{
		Partition: func([]porcupine.Operation) [][]porcupine.Operation { return parts },
		Init:      func() any { return store(nil) },
		Step: func(state, input, _ any) (bool, any) {
			return state.(store).execute(input.(transaction))
		},
		Equal: func(a, b any) bool { return a.(store).equals(b.(store)) },
	}
}

// Transactions that no chain of common keys connects are of different parts: a history is linearizable if the history of
// each part is (Herlihy and Wing, 1990).
func partition(operations []porcupine.Operation) [][]porcupine.Operation {
	parent := map[string]string{}
	var root func(key string) string
	root = func(key string) string {
		up, known := parent[key]
		if !known || up == key {
			return key
		}
		top := root(up)
		parent[key] = top
		return top
	}
	for _, operation := range operations {
		steps := operation.Input.(transaction).steps
		for _, step := range steps {
			parent[root(step.Key)] = root(steps[0].Key)
		}
	}
	var parts [][]porcupine.Operation
	index := map[string]int{}
	for _, operation := range operations {
		steps := operation.Input.(transaction).steps
		if len(steps) == 0 {
			continue
		}
		name := root(steps[0].Key)
		at, known := index[name]
		if !known {
			at = len(parts)
			index[name] = at
			parts = append(parts, nil)
		}
		parts[at] = append(parts[at], operation)
	}
	return parts
}
