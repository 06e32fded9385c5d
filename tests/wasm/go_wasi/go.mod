module lictor.example/wasi

go 1.24
