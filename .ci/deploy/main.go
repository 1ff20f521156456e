// Command deploy checks the files below deploy/: the compose file against its schema, and each
// Kubernetes manifest against the types of its API. Unknown and misspelled members are errors.
//
//	go run . FOLDER
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/compose-spec/compose-go/v2/cli"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: deploy FOLDER")
		os.Exit(2)
	}
	err := errors.Join(checkCompose(filepath.Join(os.Args[1], "compose")), checkManifests(filepath.Join(os.Args[1], "kubernetes")))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// checkCompose loads the compose file with the example settings.
func checkCompose(folder string) error {
	options, err := cli.NewProjectOptions([]string{filepath.Join(folder, "compose.yaml")},
		cli.WithEnvFiles(filepath.Join(folder, ".env.example")), cli.WithDotEnv)
	if err != nil {
		return fmt.Errorf("compose: %w", err)
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return fmt.Errorf("compose: %w", err)
	}
	for name, s := range project.Services {
		if s.Image == "" {
			return fmt.Errorf("compose: service %s has no image", name)
		}
	}
	fmt.Printf("compose: %d services\n", len(project.Services))
	return nil
}

// checkManifests decodes every object of every manifest but the kustomization.
func checkManifests(folder string) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return err
	}
	objects := 0
	for _, name := range files {
		if filepath.Base(name) == "kustomization.yaml" {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		all := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
		for {
			document, err := all.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if _, _, err := decoder.Decode(document, nil, nil); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			objects++
		}
	}
	if objects == 0 {
		return errors.New("no Kubernetes manifests found")
	}
	fmt.Printf("kubernetes: %d objects\n", objects)
	return nil
}
