package kubernetes

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"warmpath/kubeclient"
	"warmpath/scaler/actuate"
	"warmpath/scaler/actuate/actuatetest"
)

var (
	realConfig = flag.String("kubeconfig", "", "of a cluster with API server and controllers and no machines: these tests play them, in a namespace of their own")
	realScaler = flag.String("kubeconfig-scaler", "", "of the same cluster, as a user scaler who may do nothing but what the tests bind to him")
)

// real is a namespace of a real cluster, whose pods the test runs.
type real struct {
	t         *testing.T
	client    kubernetes.Interface
	scaler    *kubeclient.Client // has the Role of doc.go
	namespace string
}

func newReal(t *testing.T) *real {
	t.Helper()
	if *realConfig == "" {
		t.Skip("no cluster was given: -kubeconfig")
	}
	config := func(file string) *rest.Config {
		c, err := clientcmd.BuildConfigFromFlags("", file)
		if err != nil {
			t.Fatal(err)
		}
		c.QPS, c.Burst = 200, 400
		return c
	}
	r := &real{t: t, client: kubernetes.NewForConfigOrDie(config(*realConfig))}
	var err error
	r.scaler, err = kubeclient.New(config(cmp.Or(*realScaler, *realConfig)))
	r.must(err)
	ns, err := r.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "warmpath-test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.namespace = ns.Name
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); r.machines(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		_ = r.client.CoreV1().Namespaces().Delete(context.Background(), r.namespace, metav1.DeleteOptions{})
	})
	r.allow()
	return r
}

// allow binds the Role that doc.go asks for.
func (r *real) allow() {
	rule := func(group string, resources []string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "scaler"}, Rules: []rbacv1.PolicyRule{
		rule("apps", []string{"deployments", "statefulsets"}, "get"),
		rule("apps", []string{"deployments/scale", "statefulsets/scale"}, "update"),
		rule("apps", []string{"replicasets"}, "list"),
		rule("", []string{"pods"}, "list", "patch", "delete"),
		rule("", []string{"configmaps"}, "get", "create", "update"),
		rule("autoscaling", []string{"horizontalpodautoscalers"}, "list"),
		rule("", []string{"events"}, "list"),
	}}
	_, err := r.client.RbacV1().Roles(r.namespace).Create(r.t.Context(), role, metav1.CreateOptions{})
	r.must(err)
	_, err = r.client.RbacV1().RoleBindings(r.namespace).Create(r.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "scaler"},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "scaler"},
		Subjects:   []rbacv1.Subject{{Kind: "User", Name: "scaler", APIGroup: "rbac.authorization.k8s.io"}},
	}, metav1.CreateOptions{})
	r.must(err)
}

func (r *real) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// machines runs pods as machines do: they are placed, run, become ready, and end when
// they are told to. Pods with the label hold "unready" run and are never ready.
func (r *real) machines(ctx context.Context) {
	at := 0
	_ = wait.PollUntilContextCancel(ctx, 30*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		all, err := r.client.CoreV1().Pods(r.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, nil
		}
		for i := range all.Items {
			p := &all.Items[i]
			switch {
			case p.DeletionTimestamp != nil:
				_ = r.client.CoreV1().Pods(r.namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
			case p.Spec.NodeName == "":
				_ = r.client.CoreV1().Pods(r.namespace).Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: "machine"}}, metav1.CreateOptions{})
			case p.Status.Phase == corev1.PodPending:
				at++
				p.Status.Phase = corev1.PodRunning
				p.Status.PodIP = fmt.Sprintf("10.0.%d.%d", at/250, at%250+1)
				p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
				ready := corev1.ConditionTrue
				if p.Labels["hold"] == "unready" {
					ready = corev1.ConditionFalse
				}
				p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.Now()})
				_, _ = r.client.CoreV1().Pods(r.namespace).UpdateStatus(ctx, p, metav1.UpdateOptions{})
			}
		}
		return false, nil
	})
}

func template(name string) (*metav1.LabelSelector, corev1.PodTemplateSpec) {
	labels := map[string]string{"app": name}
	return &metav1.LabelSelector{MatchLabels: labels}, corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "engine", Image: "engine", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8000}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
		}}},
	}
}

func (r *real) deployment(name string, replicas int32) {
	r.t.Helper()
	selector, template := template(name)
	_, err := r.client.AppsV1().Deployments(r.namespace).Create(r.t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: selector, Template: template},
	}, metav1.CreateOptions{})
	r.must(err)
	r.eventually(fmt.Sprint(replicas, " pods ready"), func() bool { return len(r.ready(name)) == int(replicas) })
}

// ready returns the UIDs of the pods that are ready and do not end.
func (r *real) ready(name string) (out []types.UID) {
	all, err := r.client.CoreV1().Pods(r.namespace).List(r.t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
	r.must(err)
	for i := range all.Items {
		if p := (pod{Pod: &all.Items[i]}); p.active() && p.ready() {
			out = append(out, p.UID)
		}
	}
	return out
}

func (r *real) eventually(what string, is func() bool) {
	r.t.Helper()
	err := wait.PollUntilContextTimeout(r.t.Context(), 20*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) { return is(), nil })
	if err != nil {
		r.t.Fatalf("not within 30 s: %s", what)
	}
}

func (r *real) options(name string) Options {
	return Options{Client: r.scaler, Namespace: r.namespace, Name: name, Port: "http", Fleet: "fleet", Log: slog.New(slog.NewTextHandler(r.t.Output(), nil))}
}

func (r *real) open(o Options) *Actuator {
	r.t.Helper()
	a, err := New(o)
	r.must(err)
	return a
}

// running waits until exactly these keys run, and returns their pods by key.
func (r *real) running(a *Actuator, keys ...string) map[string]types.UID {
	r.t.Helper()
	at := map[string]types.UID{}
	r.eventually(fmt.Sprintf("%q run", keys), func() bool {
		all, err := a.List(r.t.Context())
		r.must(err)
		var up []string
		for _, i := range all {
			if i.Phase == actuate.Running && i.URL != "" {
				up = append(up, i.Key)
			}
		}
		slices.Sort(up)
		return len(all) == len(keys) && slices.Equal(up, keys)
	})
	v, err := a.load(r.t.Context())
	r.must(err)
	for _, n := range v.rec.Nodes {
		at[n.Key] = n.UID
	}
	return at
}

func (r *real) create(a *Actuator, keys ...string) {
	r.t.Helper()
	for _, key := range keys {
		_, err := a.Create(r.t.Context(), actuate.Wanted{Key: key})
		r.must(err)
	}
}

func TestRealConforms(t *testing.T) {
	r := newReal(t)
	r.deployment("ours", 2)
	r.deployment("theirs", 0)
	r.deployment("few", 0)
	open := func(name string, change func(*Options)) actuatetest.New {
		return func(t *testing.T) actuate.Actuator {
			o := r.options(name)
			o.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
			change(&o)
			a, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
	}
	first := r.ready("ours")
	options := []actuatetest.Option{
		actuatetest.OtherFleet(open("theirs", func(o *Options) { o.Fleet = "other" })),
		actuatetest.Refuses("no such workload", actuate.Settings, open("nothing", func(*Options) {}), `deployments.apps "nothing" not found`),
		actuatetest.Refuses("another's workload", actuate.Settings, open("ours", func(o *Options) { o.Fleet = "other" }), `belongs to the fleet "fleet"`),
	}
	if *realScaler != "" {
		options = append(options, actuatetest.Refuses("another namespace", actuate.Credential, open("ours", func(o *Options) { o.Namespace = "default" }), `User "scaler" cannot`))
	}
	actuatetest.Conforms(t, open("ours", func(*Options) {}), append(options, actuatetest.Patience(20*time.Second, 50*time.Millisecond))...)
	if last := r.ready("ours"); !slices.Equal(first, last) {
		t.Errorf("the user's own pods were %v and are %v", first, last)
	}
}

// TestRealEndsTheVeryPod ends nodes from the middle, many times: all others stay.
func TestRealEndsTheVeryPod(t *testing.T) {
	r := newReal(t)
	r.deployment("web", 2)
	own := r.ready("web")
	a := r.open(r.options("web"))
	keys := []string{"a", "b", "c", "d", "e", "f"}
	r.create(a, keys...)
	at := r.running(a, keys...)
	for i := range 12 {
		gone := i * 5 % len(keys)
		r.must(a.Delete(r.t.Context(), actuate.Instance{Key: keys[gone]}))
		left := slices.Delete(slices.Clone(keys), gone, gone+1)
		now := r.running(a, left...)
		for _, key := range left {
			if now[key] != at[key] {
				t.Fatalf("round %d: %q was ended, and the pod of %q went from %s to %s", i, keys[gone], key, at[key], now[key])
			}
		}
		r.create(a, keys[gone])
		at = r.running(a, keys...)
	}
	if ready := r.ready("web"); !slices.Contains(ready, own[0]) || !slices.Contains(ready, own[1]) {
		t.Errorf("the user's own pods %v are not among %v", own, ready)
	}
}

// TestRealOutranked ends a pod that is ready while others are not, which a ReplicaSet
// would end before.
func TestRealOutranked(t *testing.T) {
	r := newReal(t)
	r.deployment("web", 1)
	a := r.open(r.options("web"))
	r.create(a, "a", "b", "c")
	at := r.running(a, "a", "b", "c")
	v, err := a.load(t.Context())
	r.must(err)
	b := v.find(at["b"])
	for i := range b.Status.Conditions {
		if b.Status.Conditions[i].Type == corev1.PodReady {
			b.Status.Conditions[i].Status = corev1.ConditionFalse
		}
	}
	_, err = r.client.CoreV1().Pods(r.namespace).UpdateStatus(t.Context(), b.Pod, metav1.UpdateOptions{})
	r.must(err)
	r.must(a.Delete(t.Context(), actuate.Instance{Key: "a"}))
	now := r.running(a, "b", "c")
	if now["b"] != at["b"] || now["c"] != at["c"] {
		t.Errorf("the pods were %v and are %v", at, now)
	}
}

// TestRealQuota: what a quota forbids is said where the node waits, and the next one is
// refused.
func TestRealQuota(t *testing.T) {
	r := newReal(t)
	r.deployment("web", 1)
	_, err := r.client.CoreV1().ResourceQuotas(r.namespace).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "gpus"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"requests.cpu": resource.MustParse("2")}},
	}, metav1.CreateOptions{})
	r.must(err)
	r.eventually("the quota counts", func() bool {
		q, err := r.client.CoreV1().ResourceQuotas(r.namespace).Get(t.Context(), "gpus", metav1.GetOptions{})
		r.must(err)
		return q.Status.Hard != nil
	})
	a := r.open(r.options("web"))
	r.create(a, "a")
	r.running(a, "a")
	r.create(a, "b")
	var said string
	r.eventually("the quota's words", func() bool {
		all, err := a.List(t.Context())
		r.must(err)
		said = fmt.Sprint(all)
		return strings.Contains(said, "exceeded quota: gpus")
	})
	t.Log(said)
	_, err = a.Create(t.Context(), actuate.Wanted{Key: "c"})
	if refusal := actuate.AsRefusal(err); refusal == nil || refusal.Reason != actuate.Quota {
		t.Errorf("one more than the quota: %v", err)
	}
	t.Log(err)
	r.must(a.Delete(t.Context(), actuate.Instance{Key: "a"})) // the pod missing makes the lowering end nobody
	r.running(a, "b")
}

// TestRealRollback: what kubectl rollout undo does to a workload's annotations takes no
// node away; nothing is ended while pods of two revisions are there.
func TestRealRollout(t *testing.T) {
	r := newReal(t)
	r.deployment("web", 1)
	a := r.open(r.options("web"))
	r.create(a, "a", "b")
	r.running(a, "a", "b")
	patch := []byte(`{"spec":{"template":{"metadata":{"labels":{"hold":"unready"}}}}}`)
	_, err := r.client.AppsV1().Deployments(r.namespace).Patch(t.Context(), "web", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	r.must(err)
	r.eventually("a second revision", func() bool {
		v, err := a.load(t.Context())
		return err == nil && v.rollout
	})
	err = a.Delete(t.Context(), actuate.Instance{Key: "a"})
	if err == nil || !strings.Contains(err.Error(), "rollout") {
		t.Errorf("ended in the middle of a rollout: %v", err)
	}
	t.Log(err)
	patch = []byte(`{"spec":{"template":{"metadata":{"labels":{"hold":null}}}}}`)
	_, err = r.client.AppsV1().Deployments(r.namespace).Patch(t.Context(), "web", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	r.must(err)
	r.running(a, "b")
}

func TestRealAutoscaler(t *testing.T) {
	r := newReal(t)
	r.deployment("web", 1)
	_, err := r.client.AutoscalingV2().HorizontalPodAutoscalers(r.namespace).Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "cpu"},
		Spec:       autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 9, ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}},
	}, metav1.CreateOptions{})
	r.must(err)
	_, err = r.open(r.options("web")).Create(t.Context(), actuate.Wanted{Key: "a"})
	if refusal := actuate.AsRefusal(err); refusal == nil || refusal.Reason != actuate.Settings || !strings.Contains(err.Error(), r.namespace+"/cpu") {
		t.Errorf("with an autoscaler: %v", err)
	}
	if n := len(r.ready("web")); n != 1 {
		t.Errorf("and there are %d pods", n)
	}
}

// TestRealStatefulSet: the youngest goes first, and no other.
func TestRealStatefulSet(t *testing.T) {
	r := newReal(t)
	selector, template := template("web")
	replicas := int32(1)
	_, err := r.client.AppsV1().StatefulSets(r.namespace).Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.StatefulSetSpec{Replicas: &replicas, Selector: selector, Template: template},
	}, metav1.CreateOptions{})
	r.must(err)
	r.eventually("one pod", func() bool { return len(r.ready("web")) == 1 })
	o := r.options("web")
	o.Kind = StatefulSet
	a := r.open(o)
	r.create(a, "a", "b")
	at := r.running(a, "a", "b")
	err = a.Delete(t.Context(), actuate.Instance{Key: "a"})
	if refusal := actuate.AsRefusal(err); refusal == nil || refusal.Reason != actuate.Settings || !strings.Contains(err.Error(), "ordinal 2 first") {
		t.Errorf("ended from the middle: %v", err)
	}
	r.must(a.Delete(t.Context(), actuate.Instance{Key: "b"}))
	if now := r.running(a, "a"); now["a"] != at["a"] {
		t.Errorf("a's pod was %s and is %s", at["a"], now["a"])
	}
	r.must(a.Delete(t.Context(), actuate.Instance{Key: "a"}))
	r.running(a)
}
