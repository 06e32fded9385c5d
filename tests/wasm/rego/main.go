// Reads a JSON object a line: {"build": ...} compiles Rego to a Wasm module, {"eval": ...} asks OPA itself.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/compile"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"testing/fstest"
)

type job struct {
	Out         string            `json:"out"`
	Entrypoints []string          `json:"entrypoints"`
	Query       string            `json:"query"`
	Version     string            `json:"version"`
	Modules     map[string]string `json:"modules"`
	Input       *any              `json:"input"`
	Data        map[string]any    `json:"data"`
	Strict      bool              `json:"strict"`
}

func (j job) data() map[string]any {
	if j.Data == nil {
		return map[string]any{}
	}
	return j.Data
}

func version(j job) ast.RegoVersion {
	if j.Version == "v0" {
		return ast.RegoV0
	}
	return ast.RegoV1
}

func build(j job) (any, error) {
	files := fstest.MapFS{}
	names := []string{}
	for name, text := range j.Modules {
		files[name] = &fstest.MapFile{Data: []byte(text), Mode: fs.FileMode(0o644)}
		names = append(names, name)
	}
	c := compile.New().WithFS(files).WithPaths(names...).WithTarget(compile.TargetWasm).
		WithEntrypoints(j.Entrypoints...).WithRegoVersion(version(j))
	if err := c.Build(context.Background()); err != nil {
		return nil, err
	}
	return nil, os.WriteFile(j.Out, c.Bundle().WasmModules[0].Raw, 0o644)
}

func eval(j job) (any, error) {
	options := []func(*rego.Rego){
		rego.Query(j.Query), rego.SetRegoVersion(version(j)), rego.Store(inmem.NewFromObject(j.data())),
		rego.StrictBuiltinErrors(j.Strict),
	}
	for name, text := range j.Modules {
		options = append(options, rego.Module(name, text))
	}
	if j.Input != nil {
		options = append(options, rego.Input(*j.Input))
	}
	set, err := rego.New(options...).Eval(context.Background())
	if err != nil {
		return nil, err
	}
	values := []any{}
	for _, result := range set {
		values = append(values, result.Expressions[0].Value)
	}
	return values, nil
}

func answer(line []byte) (any, error) {
	var jobs map[string]job
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.UseNumber()
	if err := decoder.Decode(&jobs); err != nil {
		return nil, err
	}
	if j, ok := jobs["build"]; ok {
		return build(j)
	}
	return eval(jobs["eval"])
}

func main() {
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		value, err := answer(line)
		reply := map[string]any{"value": value}
		if err != nil {
			reply = map[string]any{"error": err.Error()}
		}
		text, err := json.Marshal(reply)
		if err != nil {
			text = []byte(`{"error": "not JSON"}`)
		}
		fmt.Println(string(text))
	}
}
