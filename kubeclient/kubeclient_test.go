package kubeclient

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// answering is an API server that writes down what it is asked, and has one answer,
// which it encodes as the request accepts.
type answering struct {
	t       *testing.T
	answer  runtime.Object
	version schema.GroupVersion // the answer's
	code    int
	got     []string
}

func (a *answering) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	headers := &strings.Builder{}
	_ = r.Header.Write(headers)
	deadline := "none"
	if _, ok := r.Context().Deadline(); ok {
		deadline = "some"
	}
	a.got = append(a.got, strings.Join([]string{r.Method, r.URL.String(), "deadline " + deadline, headers.String(), string(body)}, "\n"))
	media := "application/json"
	if strings.HasPrefix(r.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
		media = runtime.ContentTypeProtobuf
	}
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), media)
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", media)
	w.WriteHeader(a.code)
	if err := scheme.Codecs.EncoderForVersion(info.Serializer, a.version).Encode(a.answer, w); err != nil {
		a.t.Error(err)
	}
	return w.Result(), nil
}

const (
	agent     = "warmpath-test"
	namespace = "ns"
)

var meta = metav1.ObjectMeta{Name: "x", Namespace: namespace, UID: "uid", ResourceVersion: "7", Labels: map[string]string{"a": "b"}}

// TestAsTheClientset makes each call with this client and with client-go's clientset, in
// both encodings: they must send the same and read the same.
func TestAsTheClientset(t *testing.T) {
	three, uid, seconds := int32(3), types.UID("uid"), int64(40)
	preconditions := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
	some := metav1.ListOptions{LabelSelector: "a=b,c in (d)", FieldSelector: "involvedObject.uid=u", ResourceVersion: "5", Limit: 9, TimeoutSeconds: &seconds}
	scale := &autoscalingv1.Scale{ObjectMeta: meta, Spec: autoscalingv1.ScaleSpec{Replicas: 3}}
	config := &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"record": "{}"}}
	patch := []byte(`{"metadata":{"annotations":{"k":"v"}}}`)
	apps, core := appsv1.SchemeGroupVersion, corev1.SchemeGroupVersion
	for name, c := range map[string]struct {
		answer  runtime.Object
		version schema.GroupVersion
		ours    func(ctx context.Context, c *Client) (any, error)
		theirs  func(ctx context.Context, c kubernetes.Interface) (any, error)
	}{
		"get deployment": {
			&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: &three}}, apps,
			func(ctx context.Context, c *Client) (any, error) { return c.Deployments(namespace).Get(ctx, "x") },
			func(ctx context.Context, c kubernetes.Interface) (any, error) {
				return c.AppsV1().Deployments(namespace).Get(ctx, "x", metav1.GetOptions{})
			},
		},
		"get statefulset": {
			&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: &three}}, apps,
			func(ctx context.Context, c *Client) (any, error) { return c.StatefulSets(namespace).Get(ctx, "x") },
			func(ctx context.Context, c kubernetes.Interface) (any, error) {
				return c.AppsV1().StatefulSets(namespace).Get(ctx, "x", metav1.GetOptions{})
			},
		},
		"scale deployment": {
			scale, autoscalingv1.SchemeGroupVersion,
			func(ctx context.Context, c *Client) (any, error) {
				return c.Deployments(namespace).UpdateScale(ctx, "x", scale)
			},
			func(ctx context.Context, c kubernetes.Interface) (any, error) {
				return c.AppsV1().Deployments(namespace).UpdateScale(ctx, "x", scale, metav1.UpdateOptions{})
			},
		},
		"scale statefulset": {
			scale, autoscalingv1.SchemeGroupVersion,
			func(ctx context.Context, c *Client) (any, error) {
				return c.StatefulSets(namespace).UpdateScale(ctx, "x", scale)
			},
			func(ctx context.Context, c kubernetes.Interface) (any, error) {
				return c.AppsV1().StatefulSets(namespace).UpdateScale(ctx, "x", scale, metav1.UpdateOptions{})
			},
		},
		"list replicasets": {
			&appsv1.ReplicaSetList{Items: []appsv1.ReplicaSet{{ObjectMeta: meta}}}, apps,
			func(ctx context.Context, c *Client) (any, error) { return c.ReplicaSets(namespace).List(ctx, some) },
			func(ctx context.Context, c kubernetes.Interface) (any, error) {
				return c.AppsV1().ReplicaSets(namespace).List(ctx, some)
			},
		},
		"list pods": {
			&corev1.PodList{Items: []corev1.Pod{{ObjectMeta: meta, Status: corev1.PodStatus{PodIP: "10.0.0.1"}}}}, core,
			func(ctx context.Context, c *Client) (any, error) { return c.Pods(namespace).List(ctx, some) },
			func(ctx context.Context, c kubernetes.Interface) (any, error) {
				return c.CoreV1().Pods(namespace).List(ctx, some)
			},
		},
		"patch pod": {
			&corev1.Pod{ObjectMeta: meta}, core,
			func(ctx context.Context, c *Client) (any, error) {
				return c.Pods(namespace).MergePatch(ctx, "x", patch)
			},
			func(ctx context.Context, c kubernetes.Interface) (any, error) {
				return c.CoreV1().Pods(namespace).Patch(ctx, "x", types.MergePatchType, patch, metav1.PatchOptions{})
			},
		},
		"delete pod": {
			&corev1.Pod{ObjectMeta: meta}, core,
			func(ctx context.Context, c *Client) (any, error) {
				return nil, c.Pods(namespace).Delete(ctx, "x", preconditions)
			},
			func(ctx context.Context, c kubernetes.Interface) (any, error) {
				return nil, c.CoreV1().Pods(namespace).Delete(ctx, "x", preconditions)
			},
		},
		"get configmap": {
			config, core,
			func(ctx context.Context, c *Client) (any, error) { return c.ConfigMaps(namespace).Get(ctx, "x") },
			func(ctx context.Context, c kubernetes.Interface) (any, error) {
				return c.CoreV1().ConfigMaps(namespace).Get(ctx, "x", metav1.GetOptions{})
			},
		},
		"create configmap": {
			config, core,
			func(ctx context.Context, c *Client) (any, error) { return c.ConfigMaps(namespace).Create(ctx, config) },
			func(ctx context.Context, c kubernetes.Interface) (any, error) {
				return c.CoreV1().ConfigMaps(namespace).Create(ctx, config, metav1.CreateOptions{})
			},
		},
		"update configmap": {
			config, core,
			func(ctx context.Context, c *Client) (any, error) { return c.ConfigMaps(namespace).Update(ctx, config) },
			func(ctx context.Context, c kubernetes.Interface) (any, error) {
				return c.CoreV1().ConfigMaps(namespace).Update(ctx, config, metav1.UpdateOptions{})
			},
		},
		"list events": {
			&corev1.EventList{Items: []corev1.Event{{ObjectMeta: meta, Reason: "FailedCreate"}}}, core,
			func(ctx context.Context, c *Client) (any, error) { return c.Events(namespace).List(ctx, some) },
			func(ctx context.Context, c kubernetes.Interface) (any, error) {
				return c.CoreV1().Events(namespace).List(ctx, some)
			},
		},
		"list autoscalers": {
			&autoscalingv2.HorizontalPodAutoscalerList{Items: []autoscalingv2.HorizontalPodAutoscaler{{ObjectMeta: meta}}}, autoscalingv2.SchemeGroupVersion,
			func(ctx context.Context, c *Client) (any, error) {
				return c.HorizontalPodAutoscalers(namespace).List(ctx, metav1.ListOptions{})
			},
			func(ctx context.Context, c kubernetes.Interface) (any, error) {
				return c.AutoscalingV2().HorizontalPodAutoscalers(namespace).List(ctx, metav1.ListOptions{})
			},
		},
		"list slices": {
			&discoveryv1.EndpointSliceList{Items: []discoveryv1.EndpointSlice{{ObjectMeta: meta, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}}}}}, discoveryv1.SchemeGroupVersion,
			func(ctx context.Context, c *Client) (any, error) { return c.EndpointSlices(namespace).List(ctx, some) },
			func(ctx context.Context, c kubernetes.Interface) (any, error) {
				return c.DiscoveryV1().EndpointSlices(namespace).List(ctx, some)
			},
		},
		"watch slices": {
			&discoveryv1.EndpointSlice{ObjectMeta: meta}, discoveryv1.SchemeGroupVersion,
			func(ctx context.Context, c *Client) (any, error) {
				return stopped(c.EndpointSlices(namespace).Watch(ctx, some))
			},
			func(ctx context.Context, c kubernetes.Interface) (any, error) {
				return stopped(c.DiscoveryV1().EndpointSlices(namespace).Watch(ctx, some))
			},
		},
	} {
		for _, encoding := range []string{"", runtime.ContentTypeJSON} {
			t.Run(name+" "+encoding, func(t *testing.T) {
				ours, theirs := &answering{t: t, answer: c.answer, version: c.version, code: 200}, &answering{t: t, answer: c.answer, version: c.version, code: 200}
				made, err := New(configOf(ours, encoding))
				if err != nil {
					t.Fatal(err)
				}
				got, err := c.ours(t.Context(), made)
				want, fault := c.theirs(t.Context(), kubernetes.NewForConfigOrDie(configOf(theirs, encoding)))
				if err != nil || fault != nil {
					t.Fatalf("%v; the clientset: %v", err, fault)
				}
				if !reflect.DeepEqual(got, want) {
					t.Errorf("it read %+v\nthe clientset %+v", got, want)
				}
				if len(ours.got) != 1 || !reflect.DeepEqual(ours.got, theirs.got) {
					t.Errorf("it sent %q\nthe clientset %q", ours.got, theirs.got)
				}
			})
		}
	}
}

func configOf(server http.RoundTripper, encoding string) *rest.Config {
	return &rest.Config{Host: "http://cluster", QPS: -1, UserAgent: agent, Transport: server, ContentConfig: rest.ContentConfig{ContentType: encoding}}
}

// stopped is the watch that was opened, which this test does not read.
func stopped(w watch.Interface, err error) (any, error) {
	if err == nil {
		w.Stop()
	}
	return nil, err
}

// TestErrors: what a server refuses is told apart by apimachinery's functions, and its
// words are kept, in both encodings; no object comes with it.
func TestErrors(t *testing.T) {
	group := schema.GroupResource{Group: "apps", Resource: "deployments"}
	for _, c := range []struct {
		err *apierrors.StatusError
		is  func(error) bool
	}{
		{apierrors.NewNotFound(group, "x"), apierrors.IsNotFound},
		{apierrors.NewConflict(group, "x", errors.New("modified")), apierrors.IsConflict},
		{apierrors.NewForbidden(group, "x", errors.New("no role")), apierrors.IsForbidden},
		{apierrors.NewInvalid(schema.GroupKind{Kind: "Deployment"}, "x", nil), apierrors.IsInvalid},
		{apierrors.NewResourceExpired("too old"), apierrors.IsResourceExpired},
		{apierrors.NewTooManyRequestsError("slow down"), apierrors.IsTooManyRequests},
	} {
		for _, encoding := range []string{"", runtime.ContentTypeJSON} {
			status := c.err.Status()
			client, err := New(configOf(&answering{t: t, answer: &status, version: corev1.SchemeGroupVersion, code: int(status.Code)}, encoding))
			if err != nil {
				t.Fatal(err)
			}
			d := client.Deployments(namespace)
			got, gotErr := d.Get(t.Context(), "x")
			list, listErr := d.List(t.Context(), metav1.ListOptions{})
			scale, scaleErr := d.UpdateScale(t.Context(), "x", &autoscalingv1.Scale{})
			_, watchErr := d.Watch(t.Context(), metav1.ListOptions{})
			for _, err := range []error{gotErr, listErr, scaleErr, watchErr, d.Delete(t.Context(), "x", metav1.DeleteOptions{})} {
				if !c.is(err) || err.Error() != c.err.Error() {
					t.Errorf("%q: got %v, want %v", encoding, err, c.err)
				}
			}
			if got != nil || list != nil || scale != nil {
				t.Errorf("%v came with %v, %v, %v", c.err, got, list, scale)
			}
		}
	}
}

// TestOneLimit: groups share the calls a second; some need a burst.
func TestOneLimit(t *testing.T) {
	config := configOf(&answering{t: t, answer: &corev1.Pod{}, version: corev1.SchemeGroupVersion, code: 200}, "")
	config.QPS, config.Burst = 0.001, 1
	c, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Pods(namespace).Get(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := c.Deployments(namespace).Get(ctx, "x"); err == nil || !strings.Contains(err.Error(), "rate") {
		t.Errorf("the second call, of another group: %v", err)
	}
	config.Burst = 0
	if _, err := New(config); err == nil {
		t.Error("no call at once, and it was taken")
	}
}

func TestOpen(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte("clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\ncontexts: [{name: x, context: {cluster: c, namespace: theirs}}, {name: z, context: {cluster: c}}]\ncurrent-context: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		options         Options
		namespace, want string // want "" = it is taken
	}{
		{Options{Kubeconfig: file}, "theirs", ""},
		{Options{Kubeconfig: file, Context: "z"}, "default", ""},
		{Options{Kubeconfig: file, Namespace: "ours", CallsPerSecond: 50, CallsAtOnce: 100}, "ours", ""},
		{Options{Kubeconfig: file, CallsPerSecond: 50}, "", "make a client from kubeconfig"},
		{Options{Kubeconfig: file, Context: "none"}, "", `context "none" does not exist`},
		{Options{Kubeconfig: "testdata/none"}, "", `read kubeconfig "testdata/none"`},
		{Options{Context: "x"}, "", `context "x" is of a kubeconfig`},
		{Options{}, "", "outside one name a kubeconfig"},
	} {
		client, namespace, err := Open(c.options)
		if (client == nil) != (c.want != "") || namespace != c.namespace || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, namespace %q, %v; want namespace %q, %q", c.options, client, namespace, err, c.namespace, c.want)
		}
	}
}

// TestServersPassword: a user and a query in the server's URL are in no error.
func TestServersPassword(t *testing.T) {
	for server, want := range map[string]string{
		"https://user:hunter2@127.0.0.1:1/?key=hunter2": "connect: ",
		"http://user:hunter2@127.0.0.1:port/":           "neither a URL nor host:port",
	} {
		file := filepath.Join(t.TempDir(), "kubeconfig")
		text := `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: "` + server + `"}}]}`
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, _, err := Open(Options{Kubeconfig: file, Namespace: namespace})
		if err == nil {
			_, err = c.Pods(namespace).Get(t.Context(), "x")
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v, want %q and no password", err, want)
		}
	}
}
