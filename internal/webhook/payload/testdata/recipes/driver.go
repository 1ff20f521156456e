package main

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// init runs the vectors in place of the receiver when it is asked to.
func init() {
	if len(os.Args) < 2 || os.Args[1] != "vectors" {
		return
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), "\t")
		now, _ := strconv.ParseInt(fields[1], 10, 64)
		secret, body := text(fields[2]), []byte(text(fields[3]))
		h := http.Header{}
		for i := 4; i < len(fields); i += 2 {
			h.Add(fields[i], text(fields[i+1]))
		}
		switch fields[0] {
		case "a":
			fmt.Println(VerifyFormA(h, body, secret))
		case "b":
			fmt.Println(VerifyFormB(h, body, secret))
		case "standard":
			fmt.Println(VerifyStandard(h, body, secret, time.Unix(now, 0)))
		}
	}
	if err := lines.Err(); err != nil {
		panic(err)
	}
	os.Exit(0)
}

func text(encoded string) string {
	decoded, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		panic(err)
	}
	return string(decoded)
}
