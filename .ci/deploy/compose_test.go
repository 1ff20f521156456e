package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/emersion/go-smtp"
)

// The public host name of the documentation.
const host = "help.example.com"

// root is the folder of the project.
var root = must(filepath.Abs("../.."))

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestCompose pastes docs/operations/compose.md in an empty folder. Docker is replaced: the
// image of the Dockerfile is a folder that processes are confined to, as its user and with a
// read-only root, and the other services are programs of this machine. Host names of services
// become addresses on the loopback interface.
func TestCompose(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can confine a process to the files of an image")
	}
	for _, program := range []string{"buildah", "caddy", "curl", "unshare", "chroot"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("the services take %s", program)
		}
	}
	c := &compose{t: t, folder: filepath.Join(t.TempDir(), "compose")}
	run(t, "", "cp", "-r", filepath.Join(root, "deploy/compose"), c.folder)
	c.image = buildImage(t)
	c.smtp = serveMail(t)
	c.proxy = freePort(t)

	page := string(must(os.ReadFile(filepath.Join(root, "docs/operations/compose.md"))))
	page = strings.ReplaceAll(page, "smtp://user:password@mail.example.com:587?tls=required", "smtp://"+c.smtp)
	var answer string
	for i, m := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(page, -1) {
		for command := range strings.SplitSeq(strings.ReplaceAll(m[1], "\\\n", ""), "\n") {
			if command == "" {
				continue
			}
			switch {
			case strings.HasPrefix(command, "docker compose up"):
				c.up()
			default:
				answer = c.shell(command)
			}
		}
		t.Logf("block %d pasted", i+1)
	}
	var ticket struct {
		Number int    `json:"number"`
		URL    string `json:"url"`
	}
	if err := json.Unmarshal([]byte(answer), &ticket); err != nil || ticket.Number != 1 || ticket.URL != "https://"+host+"/tickets/1" {
		t.Fatalf("the first ticket is %s (%v)", answer, err)
	}

	// One of two web processes may go away at any time.
	c.kill("web-1")
	client := c.client()
	for range 20 {
		resp, err := client.Get("https://" + host + "/readyz")
		if err != nil {
			t.Fatalf("with one of two web processes: %v", err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("with one of two web processes: %s %s", resp.Status, body)
		}
	}
	if files, err := os.ReadDir(filepath.Join(c.folder, "s3", "attachments")); err != nil {
		t.Errorf("the store of files has no bucket %v: %v", files, err)
	}
}

// compose runs the services of the compose file.
type compose struct {
	t       *testing.T
	folder  string // of the compose file
	image   string // folder with the files of the image
	smtp    string // address of the mail server
	proxy   int    // port of the proxy
	project *types.Project
	hosts   *strings.Replacer // services to addresses
	running map[string]*exec.Cmd
}

// shell runs a pasted command. The shim of docker runs a command in the image.
func (c *compose) shell(command string) string {
	c.t.Helper()
	bin := filepath.Join(c.folder, "bin")
	if _, err := os.Stat(bin); err != nil {
		must(0, os.Mkdir(bin, 0o700))
		// docker compose exec -T web kickstand …
		must(0, os.WriteFile(filepath.Join(bin, "docker"), []byte(`#!/bin/bash
if [ "$1 $2 $3 $4 $5" != "compose exec -T web kickstand" ]; then echo "unexpected: docker $*" >&2; exit 2; fi
shift 5
exec "$IN_IMAGE" "$@"
`), 0o700))
		must(0, os.WriteFile(filepath.Join(bin, ".curlrc"), fmt.Appendf(nil,
			"connect-to = %q\ncacert = %q\n", fmt.Sprintf("%s:443:127.0.0.1:%d", host, c.proxy), c.certificate()), 0o600))
	}
	if strings.Contains(command, "docker compose exec") {
		web := c.project.Services["web"]
		must(0, os.WriteFile(filepath.Join(bin, "in-image"), []byte("#!/bin/bash\nexec env -i "+quoted(c.environment(web, 0))+" "+confined(c.image)+" \"$@\"\n"), 0o700))
	}
	if rest, ok := strings.CutPrefix(command, "KEY="); ok { // the next block uses it
		command = "KEY=" + rest + "; printf %s \"$KEY\" >key; [ -n \"$KEY\" ]"
	} else if _, err := os.Stat(filepath.Join(c.folder, "key")); err == nil {
		command = "KEY=$(cat key); " + command
	}
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", command)
	cmd.Dir = c.folder
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "IN_IMAGE="+filepath.Join(bin, "in-image"), "CURL_HOME="+bin)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		c.t.Fatalf("%s: %v\n%s%s", command, err, out, errs.Bytes())
	}
	return string(out)
}

// confined is the command line that runs the program of an image: as the image's user, with a
// read-only root and an empty folder for data.
func confined(image string) string {
	return fmt.Sprintf(`unshare --mount bash -c 'set -e; mount --bind %[1]s %[1]s; mount -o remount,ro,bind %[1]s
mount -t tmpfs -o uid=65532,gid=65532,mode=0700 tmpfs %[1]s/data
cd /; exec /usr/sbin/chroot --userspec=65532:65532 %[1]s /usr/local/bin/kickstand "$@"' kickstand`, image)
}

func quoted(env []string) string {
	for i, e := range env {
		env[i] = "'" + strings.ReplaceAll(e, "'", `'\''`) + "'"
	}
	return strings.Join(env, " ")
}

// up starts all services, and returns when they are healthy.
func (c *compose) up() {
	t := c.t
	options := must(cli.NewProjectOptions([]string{filepath.Join(c.folder, "compose.yaml")}, cli.WithEnvFiles(filepath.Join(c.folder, ".env")), cli.WithDotEnv))
	c.project = must(options.LoadProject(context.Background()))
	c.running = make(map[string]*exec.Cmd)

	// PostgreSQL, with the user that its image creates.
	cluster := filepath.Join(c.folder, "postgres")
	must(0, os.Chmod(filepath.Dir(filepath.Dir(c.folder)), 0o711))
	must(0, os.Chmod(filepath.Dir(c.folder), 0o711))
	must(0, os.Chmod(c.folder, 0o711))
	address := strings.TrimSpace(run(t, root, ".ci/postgres", "start", cluster))
	t.Cleanup(func() { run(t, root, ".ci/postgres", "stop", cluster) })
	run(t, "", "psql", "-q", address, "-c", "CREATE USER kickstand", "-c", "CREATE DATABASE kickstand OWNER kickstand")
	postgres := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(address)

	counts := filepath.Join(c.folder, "redis")
	redis := strings.TrimPrefix(strings.TrimSpace(run(t, root, ".ci/redis", "start", counts)), "redis://")
	t.Cleanup(func() { run(t, root, ".ci/redis", "stop", counts) })

	s3 := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	c.hosts = strings.NewReplacer("@postgres/", "@"+postgres+"/", "redis:6379/0", strings.TrimSuffix(redis, "/")+"", "http://s3:7070", "http://"+s3)

	store := c.project.Services["s3"]
	folder := filepath.Join(c.folder, "s3")
	must(0, os.Mkdir(folder, 0o700))
	inHere := strings.NewReplacer("/data", folder, "/run/secrets/", filepath.Join(c.folder, "secrets")+"/", ":7070", s3,
		"versitygw", strings.TrimSpace(run(t, "", "go", "tool", "-n", "versitygw")))
	var entrypoint []string
	for _, word := range store.Entrypoint {
		entrypoint = append(entrypoint, inHere.Replace(word))
	}
	c.start("s3", exec.Command(entrypoint[0], entrypoint[1:]...))
	c.await("s3", func() bool {
		conn, err := net.Dial("tcp", s3)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})

	// Secrets are files of the container, with the permissions that they have here.
	run(t, "", "cp", "-rp", filepath.Join(c.folder, "secrets"), filepath.Join(c.image, "run"))
	must(0, os.Chmod(filepath.Join(c.image, "run", "secrets"), 0o755)) // as Docker mounts it
	for name := range c.project.Secrets {
		path := filepath.Join(c.image, "run", "secrets", name)
		text := c.hosts.Replace(string(must(os.ReadFile(path))))
		must(0, os.WriteFile(path, []byte(text), 0))
	}

	var upstreams []string
	for _, name := range []string{"web", "worker"} {
		service := c.project.Services[name]
		for i := range *service.Deploy.Replicas {
			port := freePort(t)
			cmd := exec.Command("bash", "-c", "exec "+confined(c.image)+" \"$@\"", "confined", "serve")
			cmd.Env = c.environment(service, port)
			container := fmt.Sprintf("%s-%d", name, i+1)
			c.start(container, cmd)
			if name == "web" {
				upstreams = append(upstreams, fmt.Sprintf("127.0.0.1:%d", port))
			}
			check := slices.Clone(service.HealthCheck.Test[2:])
			c.await(container, func() bool {
				cmd := exec.Command("bash", "-c", "exec "+confined(c.image)+" \"$@\"", "confined")
				cmd.Args = append(cmd.Args, check...)
				cmd.Env = c.environment(service, port)
				return cmd.Run() == nil
			})
		}
	}

	caddyfile := string(must(os.ReadFile(filepath.Join(c.folder, "Caddyfile"))))
	dynamic := regexp.MustCompile(`(?s)dynamic a web 8080 \{.*?\}`)
	if !dynamic.MatchString(caddyfile) {
		t.Fatal("the Caddyfile does not look the web service up")
	}
	caddyfile = fmt.Sprintf("{\n\tadmin off\n\tlocal_certs\n\tskip_install_trust\n\thttp_port %d\n\thttps_port %d\n}\n", freePort(t), c.proxy) +
		dynamic.ReplaceAllString(caddyfile, "to "+strings.Join(upstreams, " "))
	path := filepath.Join(c.folder, "Caddyfile.local")
	must(0, os.WriteFile(path, []byte(caddyfile), 0o600))
	proxy := exec.Command("caddy", "run", "--config", path, "--adapter", "caddyfile")
	proxy.Env = append(os.Environ(), "KICKSTAND_HOST="+*c.project.Services["proxy"].Environment["KICKSTAND_HOST"], "XDG_DATA_HOME="+filepath.Join(c.folder, "certificates"), "XDG_CONFIG_HOME="+filepath.Join(c.folder, "certificates"))
	c.start("proxy", proxy)
	c.await("proxy", func() bool {
		if _, err := os.Stat(c.certificate()); err != nil {
			return false
		}
		resp, err := c.client().Get("https://" + host + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// environment returns the variables of a container, which listens on a port of its own.
func (c *compose) environment(service types.ServiceConfig, port int) []string {
	env := []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin", "KICKSTAND_DATA=/data", "TMPDIR=/data", fmt.Sprintf("KICKSTAND_LISTEN=127.0.0.1:%d", port)}
	for name, value := range service.Environment {
		text := c.hosts.Replace(*value)
		if name == "KICKSTAND_TRUSTED_PROXIES" {
			text = "127.0.0.1"
		}
		env = append(env, name+"="+text)
	}
	return env
}

// start starts a process that ends with the test.
func (c *compose) start(name string, cmd *exec.Cmd) {
	c.t.Helper()
	out := must(os.Create(filepath.Join(c.folder, name+".log")))
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		c.t.Fatalf("%s: %v", name, err)
	}
	c.running[name] = cmd
	c.t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		out.Close()
		if c.t.Failed() {
			text, _ := os.ReadFile(out.Name())
			c.t.Logf("%s:\n%s", name, text[max(0, len(text)-4000):])
		}
	})
}

func (c *compose) kill(name string) {
	c.running[name].Process.Kill()
	c.running[name].Wait()
}

// await waits until a service is healthy.
func (c *compose) await(name string, healthy func() bool) {
	c.t.Helper()
	deadline := time.After(time.Minute)
	for !healthy() {
		select {
		case <-deadline:
			c.t.Fatalf("%s is not healthy after a minute", name)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// certificate is the file with the certificate of the proxy's authority.
func (c *compose) certificate() string {
	return filepath.Join(c.folder, "certificates/caddy/pki/authorities/local/root.crt")
}

// client reaches the proxy under the public host name.
func (c *compose) client() *http.Client {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(must(os.ReadFile(c.certificate())))
	return &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, fmt.Sprintf("127.0.0.1:%d", c.proxy))
		},
	}}
}

// buildImage builds the image of the Dockerfile from this tree's program, checks its settings,
// and returns the folder with its files.
func buildImage(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	platform := filepath.Join(dir, "context", "linux", run(t, "", "go", "env", "GOARCH"))
	platform = strings.TrimSpace(platform)
	must(0, os.MkdirAll(platform, 0o755))
	run(t, root, "go", "build", "-trimpath", "-o", filepath.Join(platform, "kickstand"), "./cmd/kickstand")
	run(t, "", "cp", "-r", "--parents", filepath.Join(root, "deploy/image"), dir)
	must(0, os.Mkdir(filepath.Join(dir, "context", "deploy"), 0o755))
	must(0, os.Rename(filepath.Join(dir, root, "deploy/image"), filepath.Join(dir, "context", "deploy", "image")))
	arguments := []string{"--storage-driver", "vfs", "--root", filepath.Join(dir, "images"), "--runroot", filepath.Join(dir, "run")}
	buildah := func(rest ...string) string {
		return strings.TrimSpace(run(t, "", "buildah", append(slices.Clone(arguments), rest...)...))
	}
	buildah("build", "--isolation", "chroot", "--build-arg", "TARGETPLATFORM=linux/"+filepath.Base(platform),
		"-f", filepath.Join(root, "Dockerfile"), "-t", "kickstand", filepath.Join(dir, "context"))
	var image struct {
		OCIv1 struct {
			Config struct {
				User       string   `json:"User"`
				Entrypoint []string `json:"Entrypoint"`
				Cmd        []string `json:"Cmd"`
				Env        []string `json:"Env"`
			} `json:"config"`
		} `json:"OCIv1"`
	}
	if err := json.Unmarshal([]byte(buildah("inspect", "--type", "image", "kickstand")), &image); err != nil {
		t.Fatal(err)
	}
	config := image.OCIv1.Config
	if config.User != "65532:65532" || !slices.Equal(config.Entrypoint, []string{"/usr/local/bin/kickstand"}) || !slices.Equal(config.Cmd, []string{"serve"}) ||
		!slices.Contains(config.Env, "KICKSTAND_DATA=/data") || !slices.Contains(config.Env, "TMPDIR=/data") {
		t.Errorf("the image's settings are %+v", config)
	}
	folder := buildah("mount", buildah("from", "kickstand"))
	t.Cleanup(func() { exec.Command("chmod", "-R", "u+rwx", dir).Run() })
	// Above it, everybody may pass. Docker creates the folder of secrets.
	for parent := folder; parent != "/" && parent != os.TempDir(); parent = filepath.Dir(parent) {
		info := must(os.Stat(parent))
		must(0, os.Chmod(parent, info.Mode().Perm()|0o111))
	}
	must(0, os.Mkdir(filepath.Join(folder, "run"), 0o755))
	must(0, os.Mkdir(filepath.Join(folder, "etc"), 0o755)) // Docker writes its files
	must(0, os.WriteFile(filepath.Join(folder, "etc", "hosts"), []byte("127.0.0.1 localhost "+host+"\n"), 0o644))
	return folder
}

// serveMail serves SMTP and drops the mails.
func serveMail(t *testing.T) string {
	t.Helper()
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	s := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return mailSession{}, nil }))
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return l.Addr().String()
}

type mailSession struct{}

func (mailSession) Reset()                               {}
func (mailSession) Logout() error                        { return nil }
func (mailSession) Mail(string, *smtp.MailOptions) error { return nil }
func (mailSession) Rcpt(string, *smtp.RcptOptions) error { return nil }
func (mailSession) Data(r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// freePort returns a port that nobody listens on, below those of the system's own choice, which others
// could get before it is used.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := 20_000 + rand.IntN(10_000)
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no free port from 20000 to 29999")
	return 0
}

// run runs a command and returns its output.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, errs.Bytes())
	}
	return string(out)
}
