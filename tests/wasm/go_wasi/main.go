// A WASI policy in Go: objects must carry the labels in settings.required, and get those of settings.added.
// settings.look tells what the policy finds around it; settings.fault makes it loop, panic, exit or sleep.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"
)

type settings struct {
	Required []string          `json:"required"`
	Added    map[string]string `json:"added"`
	Look     bool              `json:"look"`
	Fault    string            `json:"fault"`
}

type review struct {
	Request struct {
		Object map[string]any `json:"object"`
	} `json:"request"`
	Settings settings `json:"settings"`
}

func main() {
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		fail(err)
	}
	switch os.Args[1] {
	case "validate":
		var given review
		if err := json.Unmarshal(input, &given); err != nil {
			fail(err)
		}
		answer(judge(given))
	case "validate-settings":
		var given settings
		if err := json.Unmarshal(input, &given); err != nil {
			answer(map[string]any{"valid": false, "message": err.Error()})
			return
		}
		answer(map[string]any{"valid": true})
	default:
		fail(fmt.Errorf("no operation %s", os.Args[1]))
	}
}

func answer(value any) {
	if err := json.NewEncoder(os.Stdout).Encode(value); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func judge(given review) any {
	switch given.Settings.Fault {
	case "loop":
		for {
		}
	case "panic":
		panic("a bug of the policy")
	case "exit":
		fail(fmt.Errorf("gave up"))
	case "sleep":
		time.Sleep(time.Hour)
	case "nap":
		time.Sleep(10 * time.Millisecond)
	}
	if given.Settings.Look {
		return map[string]any{"accepted": true, "message": look()}
	}
	metadata, _ := given.Request.Object["metadata"].(map[string]any)
	labels, _ := metadata["labels"].(map[string]any)
	for _, name := range given.Settings.Required {
		if _, found := labels[name]; !found {
			return map[string]any{"accepted": false, "message": "label " + name + " is missing", "code": 403}
		}
	}
	if len(given.Settings.Added) == 0 || metadata == nil {
		return map[string]any{"accepted": true}
	}
	if labels == nil {
		labels = map[string]any{}
	}
	for name, value := range given.Settings.Added {
		labels[name] = value
	}
	metadata["labels"] = labels
	return map[string]any{"accepted": true, "mutated_object": given.Request.Object}
}

func look() string {
	_, openErr := os.Open("/etc/passwd")
	_, writeErr := os.Create("/tmp/x")
	_, listErr := os.ReadDir(".")
	return fmt.Sprint(os.Args, len(os.Environ()), openErr != nil, writeErr != nil, listErr != nil, time.Now().Year() > 2000)
}
