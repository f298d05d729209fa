package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"warmpath/kubeclient"
)

// cluster is an API server for the resources that this package uses, over HTTP and
// JSON, with versions and their conflicts; and what controllers and machines do there,
// which tests call.
type cluster struct {
	t *testing.T

	mu          sync.Mutex
	version     int
	named       int
	deployments map[string]*appsv1.Deployment
	sets        map[string]*appsv1.StatefulSet
	replicaSets map[string]*appsv1.ReplicaSet
	pods        map[string]*corev1.Pod
	configs     map[string]*corev1.ConfigMap
	autoscalers []autoscalingv2.HorizontalPodAutoscaler
	events      []corev1.Event
	quota       int // pods that there may be; 0 = no quota

	// before sees each request, and may answer in place of the server.
	before func(r *http.Request) *apierrors.StatusError
	// killed sees each pod that is told to end, and by whom.
	killed func(p *corev1.Pod, by string)
}

const place = "inference" // the namespace

func newCluster(t *testing.T) *cluster {
	return &cluster{
		t: t, deployments: map[string]*appsv1.Deployment{}, sets: map[string]*appsv1.StatefulSet{}, replicaSets: map[string]*appsv1.ReplicaSet{},
		pods: map[string]*corev1.Pod{}, configs: map[string]*corev1.ConfigMap{},
	}
}

// overHTTP serves the cluster on a socket and returns a client of it.
func (c *cluster) overHTTP() *kubeclient.Client {
	c.t.Helper()
	server := httptest.NewServer(c)
	c.t.Cleanup(server.Close)
	return client(c.t, server.URL, nil)
}

// inMemory returns a client whose requests go through no socket.
func (c *cluster) inMemory() *kubeclient.Client { return client(c.t, "http://cluster", c) }

// client makes one that speaks JSON, as the cluster does. Without a transport it goes
// over sockets.
func client(t interface{ Fatal(...any) }, host string, transport http.RoundTripper) *kubeclient.Client {
	c, err := kubeclient.New(&rest.Config{Host: host, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}, Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// RoundTrip implements http.RoundTripper.
func (c *cluster) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	c.ServeHTTP(w, kept(r))
	return w.Result(), nil
}

// transport is a http.RoundTripper that is a function.
type transport func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// asked is a request in the words of the API server's rules: its verb and resource.
func asked(r *http.Request) (verb, resource string) {
	_, path, _ := strings.Cut(r.URL.Path, "/namespaces/"+place+"/")
	resource, name, _ := strings.Cut(path, "/")
	verb = map[string]string{"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[r.Method]
	if verb == "get" && name == "" {
		verb = "list"
	}
	return verb, resource
}

// kept is a request that outlives its caller.
func kept(r *http.Request) *http.Request {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	r = r.Clone(context.Background())
	r.Body = io.NopCloser(bytes.NewReader(body))
	return r
}

// deploy makes a workload with pods that run.
func (c *cluster) deploy(kind, name string, replicas int32) {
	c.t.Helper()
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	if kind == StatefulSet {
		c.sets[name] = &appsv1.StatefulSet{ObjectMeta: c.meta(name), Spec: appsv1.StatefulSetSpec{Replicas: &replicas, Selector: selector}}
	} else {
		c.deployments[name] = &appsv1.Deployment{ObjectMeta: c.meta(name), Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: selector}}
	}
	c.settle()
}

// meta is of a new object.
func (c *cluster) meta(name string) metav1.ObjectMeta {
	c.named++
	return metav1.ObjectMeta{
		Name: name, Namespace: place, UID: types.UID("uid-" + strconv.Itoa(c.named)), ResourceVersion: c.next(), Generation: 1,
		CreationTimestamp: metav1.Unix(int64(1_700_000_000+c.named/10), 0), // several have the same second
	}
}

func (c *cluster) next() string {
	c.version++
	return strconv.Itoa(c.version)
}

// ServeHTTP implements http.Handler.
func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var answer any
	var err error
	if c.before != nil {
		if refused := c.before(r); refused != nil {
			err = refused
		}
	}
	if err == nil {
		answer, err = c.serve(r)
	}
	reply(w, answer, err)
}

// reply writes an answer, or an error as the API server does.
func reply(w http.ResponseWriter, answer any, err error) {
	code := http.StatusOK
	if err != nil {
		var status *apierrors.StatusError
		if !errors.As(err, &status) {
			status = apierrors.NewInternalError(err)
		}
		s := status.Status()
		s.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		answer, code = s, int(s.Code)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer)
}

// serve answers one request.
func (c *cluster) serve(r *http.Request) (any, error) {
	_, path, ok := strings.Cut(r.URL.Path, "/namespaces/"+place+"/")
	if !ok {
		return nil, fmt.Errorf("no such path %s", r.URL.Path)
	}
	words := append(strings.Split(path, "/"), "", "")
	resource, name, sub := words[0], words[1], words[2]
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	switch r.Method + " " + resource + "/" + sub {
	case "GET deployments/":
		if d := c.deployments[name]; d != nil {
			return typed(d.DeepCopy(), &d.TypeMeta, "apps/v1", "Deployment"), nil
		}
	case "GET statefulsets/":
		if s := c.sets[name]; s != nil {
			return typed(s.DeepCopy(), &s.TypeMeta, "apps/v1", "StatefulSet"), nil
		}
	case "PUT deployments/scale":
		if d := c.deployments[name]; d != nil {
			return c.scale(body, "deployments", &d.ObjectMeta, d.Spec.Replicas)
		}
	case "PUT statefulsets/scale":
		if s := c.sets[name]; s != nil {
			return c.scale(body, "statefulsets", &s.ObjectMeta, s.Spec.Replicas)
		}
	case "GET replicasets/":
		list := &appsv1.ReplicaSetList{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ReplicaSetList"}}
		for _, s := range sorted(c.replicaSets) {
			list.Items = append(list.Items, *s)
		}
		return list, nil
	case "GET pods/":
		return c.listPods(r)
	case "PATCH pods/":
		if p := c.pods[name]; p != nil {
			return c.patchPod(p, body)
		}
	case "DELETE pods/":
		if p := c.pods[name]; p != nil {
			return c.deletePod(p, body)
		}
	case "GET configmaps/":
		if m := c.configs[name]; m != nil {
			return m, nil
		}
	case "POST configmaps/", "PUT configmaps/":
		return c.putConfig(body, r.Method == "POST")
	case "GET horizontalpodautoscalers/":
		return &autoscalingv2.HorizontalPodAutoscalerList{TypeMeta: metav1.TypeMeta{APIVersion: "autoscaling/v2", Kind: "HorizontalPodAutoscalerList"}, Items: c.autoscalers}, nil
	case "GET events/":
		return &corev1.EventList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "EventList"}, Items: c.events}, nil
	default:
		return nil, fmt.Errorf("%s %s is not served", r.Method, r.URL.Path)
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: groups[resource], Resource: resource}, name)
}

var groups = map[string]string{"deployments": "apps", "statefulsets": "apps"}

func typed[T any](object T, at *metav1.TypeMeta, version, kind string) T {
	*at = metav1.TypeMeta{APIVersion: version, Kind: kind}
	return object
}

func sorted[T any](m map[string]T) (out []T) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[name])
	}
	return out
}

func (c *cluster) conflict(resource, name string) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: resource}, name, errors.New("the object has been modified; please apply your changes to the latest version and try again"))
}

func (c *cluster) scale(body []byte, resource string, m *metav1.ObjectMeta, replicas *int32) (any, error) {
	var s autoscalingv1.Scale
	if err := json.Unmarshal(body, &s); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if s.ResourceVersion != "" && s.ResourceVersion != m.ResourceVersion || s.UID != "" && s.UID != m.UID {
		return nil, c.conflict(resource, m.Name)
	}
	if *replicas != s.Spec.Replicas {
		*replicas = s.Spec.Replicas
		m.Generation++
		m.ResourceVersion = c.next()
	}
	s.TypeMeta = metav1.TypeMeta{APIVersion: "autoscaling/v1", Kind: "Scale"}
	s.ResourceVersion, s.UID = m.ResourceVersion, m.UID
	return &s, nil
}

func (c *cluster) listPods(r *http.Request) (any, error) {
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	list := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	for _, p := range sorted(c.pods) {
		if selector.Matches(labels.Set(p.Labels)) {
			list.Items = append(list.Items, *p)
		}
	}
	return list, nil
}

func (c *cluster) patchPod(p *corev1.Pod, body []byte) (any, error) {
	var patch struct {
		Metadata struct {
			UID         types.UID
			Annotations map[string]string
		}
	}
	if err := json.Unmarshal(body, &patch); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if patch.Metadata.UID != "" && patch.Metadata.UID != p.UID {
		return nil, c.conflict("pods", p.Name)
	}
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	maps.Copy(p.Annotations, patch.Metadata.Annotations)
	p.ResourceVersion = c.next()
	p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	return p, nil
}

func (c *cluster) deletePod(p *corev1.Pod, body []byte) (any, error) {
	var o metav1.DeleteOptions
	if err := json.Unmarshal(body, &o); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if o.Preconditions != nil && o.Preconditions.UID != nil && *o.Preconditions.UID != p.UID {
		return nil, c.conflict("pods", p.Name)
	}
	c.kill(p, "request")
	p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	return p, nil
}

func (c *cluster) putConfig(body []byte, create bool) (any, error) {
	m := &corev1.ConfigMap{}
	if err := json.Unmarshal(body, m); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	was := c.configs[m.Name]
	switch {
	case create && was != nil:
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "configmaps"}, m.Name)
	case !create && was == nil:
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, m.Name)
	case !create && m.ResourceVersion != was.ResourceVersion:
		return nil, c.conflict("configmaps", m.Name)
	}
	m.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	m.ResourceVersion = c.next()
	c.configs[m.Name] = m
	return m, nil
}
