module lictor.example/wapc

go 1.24
