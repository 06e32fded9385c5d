// A waPC policy in Go: objects must carry the labels in settings.required, and get those of settings.added.
// With settings.ask it asks its host for that Namespace; settings.fault makes it loop, panic or take memory.
package main

import (
	"encoding/json"
	"fmt"
	"unsafe"
)

//go:wasmimport wapc __guest_request
func guestRequest(operation, payload unsafe.Pointer)

//go:wasmimport wapc __guest_response
func guestResponse(text unsafe.Pointer, length uint32)

//go:wasmimport wapc __guest_error
func guestError(text unsafe.Pointer, length uint32)

//go:wasmimport wapc __host_call
func hostCall(binding unsafe.Pointer, bindingLength uint32, namespace unsafe.Pointer, namespaceLength uint32,
	operation unsafe.Pointer, operationLength uint32, payload unsafe.Pointer, payloadLength uint32) uint32

//go:wasmimport wapc __host_response_len
func hostResponseLength() uint32

//go:wasmimport wapc __host_response
func hostResponse(text unsafe.Pointer)

//go:wasmimport wapc __host_error_len
func hostErrorLength() uint32

//go:wasmimport wapc __host_error
func hostError(text unsafe.Pointer)

type settings struct {
	Required []string          `json:"required"`
	Added    map[string]string `json:"added"`
	Ask      string            `json:"ask"`
	Fault    string            `json:"fault"`
}

type review struct {
	Request struct {
		Object map[string]any `json:"object"`
	} `json:"request"`
	Settings settings `json:"settings"`
}

var calls int

//go:wasmexport __guest_call
func guestCall(operationLength, payloadLength uint32) uint32 {
	operation, payload := make([]byte, operationLength+1), make([]byte, payloadLength+1)
	guestRequest(unsafe.Pointer(&operation[0]), unsafe.Pointer(&payload[0]))
	calls++
	answer, err := handle(string(operation[:operationLength]), payload[:payloadLength])
	if err != nil {
		text := []byte(err.Error())
		guestError(unsafe.Pointer(&text[0]), uint32(len(text)))
		return 0
	}
	text, _ := json.Marshal(answer)
	guestResponse(unsafe.Pointer(&text[0]), uint32(len(text)))
	return 1
}

func handle(operation string, payload []byte) (any, error) {
	switch operation {
	case "protocol_version":
		return "v1", nil
	case "validate_settings":
		var given settings
		if err := json.Unmarshal(payload, &given); err != nil {
			return map[string]any{"valid": false, "message": err.Error()}, nil
		}
		return map[string]any{"valid": true}, nil
	case "validate":
		var given review
		if err := json.Unmarshal(payload, &given); err != nil {
			return nil, err
		}
		return judge(given)
	}
	return nil, fmt.Errorf("no operation %s", operation)
}

func judge(given review) (any, error) {
	switch given.Settings.Fault {
	case "loop":
		for {
			calls++
		}
	case "panic":
		panic("a bug of the policy")
	case "memory":
		var taken [][]byte
		for {
			taken = append(taken, make([]byte, 1<<20))
		}
	case "count":
		return map[string]any{"accepted": true, "message": fmt.Sprint(calls)}, nil
	}
	if given.Settings.Ask != "" {
		text, ok := ask(given.Settings.Ask)
		return map[string]any{"accepted": ok, "message": text}, nil
	}
	return checkLabels(given), nil
}

func checkLabels(given review) any {
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

func ask(name string) (string, bool) {
	words := [][]byte{[]byte("kubewarden"), []byte("kubernetes"), []byte("get_resource"), nil}
	words[3], _ = json.Marshal(map[string]any{"api_version": "v1", "kind": "Namespace", "name": name, "disable_cache": false})
	ok := hostCall(unsafe.Pointer(&words[0][0]), uint32(len(words[0])), unsafe.Pointer(&words[1][0]), uint32(len(words[1])),
		unsafe.Pointer(&words[2][0]), uint32(len(words[2])), unsafe.Pointer(&words[3][0]), uint32(len(words[3])))
	if ok == 1 {
		text := make([]byte, hostResponseLength()+1)
		hostResponse(unsafe.Pointer(&text[0]))
		return string(text[:len(text)-1]), true
	}
	text := make([]byte, hostErrorLength()+1)
	hostError(unsafe.Pointer(&text[0]))
	return string(text[:len(text)-1]), false
}

func main() {}
