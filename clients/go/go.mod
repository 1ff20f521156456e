module github.com/kickstand-dev/kickstand/clients/go

go 1.24
