package kube

import (
	"context"
	"flag"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

var realConfig = flag.String("kubeconfig", "", "of a cluster with API server and controllers and no machines: the test plays them, in a namespace of its own")

// TestReal follows a Service of a real cluster: pods come, go, and the Service with them.
func TestReal(t *testing.T) {
	if *realConfig == "" {
		t.Skip("no cluster was given: -kubeconfig")
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", *realConfig)
	must(err)
	client := kubernetes.NewForConfigOrDie(config)
	ns, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "warmpath-test-"}}, metav1.CreateOptions{})
	must(err)
	t.Cleanup(func() {
		_ = client.CoreV1().Namespaces().Delete(context.Background(), ns.Name, metav1.DeleteOptions{})
	})
	pods := client.CoreV1().Pods(ns.Name)
	labels := map[string]string{"app": "vllm"}
	pod := func(name, address string) {
		t.Helper()
		p, err := pods.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
			Spec:       corev1.PodSpec{NodeName: "machine", Containers: []corev1.Container{{Name: "engine", Image: "engine", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8000}}}}},
		}, metav1.CreateOptions{})
		must(err)
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}}, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
		_, err = pods.UpdateStatus(t.Context(), p, metav1.UpdateOptions{})
		must(err)
	}
	s, err := New(Options{Kubeconfig: *realConfig, Namespace: ns.Name, Service: "vllm", Port: "http"})
	must(err)
	said := follow(t, s)
	said.want(t, "failed: there is no EndpointSlice of vllm")
	_, err = client.CoreV1().Services(ns.Name).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "vllm"},
		Spec:       corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("http")}}},
	}, metav1.CreateOptions{})
	must(err)
	said.wantEventually(t, "nodes")
	pod("a", "10.0.0.1")
	said.wantEventually(t, "nodes a=10.0.0.1:8000")
	pod("b", "10.0.0.2")
	said.wantEventually(t, "nodes a=10.0.0.1:8000 b=10.0.0.2:8000")
	must(pods.Delete(t.Context(), "a", metav1.DeleteOptions{})) // no machine ends it
	said.wantEventually(t, "nodes b=10.0.0.2:8000")
	must(pods.Delete(t.Context(), "b", metav1.DeleteOptions{}))
	said.wantEventually(t, "nodes")
	must(client.CoreV1().Services(ns.Name).Delete(t.Context(), "vllm", metav1.DeleteOptions{}))
	must(client.DiscoveryV1().EndpointSlices(ns.Name).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	said.wantEventually(t, "there is no EndpointSlice of vllm")
}
