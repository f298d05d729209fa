package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"warmpath/scaler/actuate"
	"warmpath/scaler/actuate/actuatetest"
)

// TestConforms runs what all actuators must do against a server on a socket.
func TestConforms(t *testing.T) {
	c := newCluster(t)
	c.deploy(Deployment, "web", 2)
	c.deploy(Deployment, "theirs", 1)
	c.deploy(Deployment, "held", 0)
	client := c.overHTTP()
	own := slices.Collect(func(yield func(string) bool) {
		for _, p := range sorted(c.pods) {
			if !yield(string(p.UID)) {
				return
			}
		}
	})
	live(t, c)
	opens := func(change func(*Options)) actuatetest.New {
		return func(t *testing.T) actuate.Actuator { return open(t, client, change) }
	}
	actuatetest.Conforms(t, opens(nil),
		actuatetest.OtherFleet(opens(func(o *Options) { o.Name, o.Fleet = "theirs", "other" })),
		actuatetest.Refuses("another's workload", actuate.Settings, opens(func(o *Options) { o.Name = "none" }), `deployments.apps "none" not found`),
		actuatetest.Refuses("full", actuate.Quota, func(t *testing.T) actuate.Actuator {
			a := open(t, client, func(o *Options) { o.Name, o.MaxNodes = "held", 1 })
			create(t, a, "one")
			return a
		}, "may have 1"))
	for _, uid := range own {
		if !slices.ContainsFunc(sorted(c.pods), func(p *corev1.Pod) bool { return string(p.UID) == uid }) {
			t.Errorf("the user's pod %s is gone", uid)
		}
	}
}

// live runs controllers and machines until the test ends.
func live(t *testing.T, c *cluster) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				c.mu.Lock()
				c.control()
				for _, p := range sorted(c.pods) {
					c.run(p)
				}
				c.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// TestSaid: what the cluster says of nodes that do not come, and of those that went.
func TestSaid(t *testing.T) {
	c := newCluster(t)
	c.deploy(Deployment, "web", 0)
	a := open(t, c.inMemory(), nil)
	create(t, a, "a", "b")
	c.quota = 1
	c.control()
	if said := list(t, a); !strings.Contains(said["b"], `pending no pod yet: FailedCreate: pods "web-x" is forbidden: exceeded quota: gpus`) {
		t.Errorf("over quota: %q", said)
	}
	_, err := a.Create(t.Context(), actuate.Wanted{Key: "c"})
	if refusal := actuate.AsRefusal(err); refusal == nil || refusal.Reason != actuate.Quota || !strings.Contains(err.Error(), "exceeded quota: gpus, requested: pods=1, used: pods=1, limited: pods=1") {
		t.Errorf("one more: %v", err)
	}
	p := sorted(c.pods)[0]
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."}}
	if said := list(t, a)["a"]; said != "pending pod "+p.Name+": Unschedulable: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu." {
		t.Errorf("unschedulable: %q", said)
	}
	p.Spec.NodeName, p.Status.Conditions = "machine", nil
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: `Back-off pulling image "nothing"`}}}}
	if said := list(t, a)["a"]; said != "pending pod "+p.Name+`: ImagePullBackOff: Back-off pulling image "nothing"` {
		t.Errorf("no image: %q", said)
	}
	p.Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
	p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}
	p.Status.Phase, p.Status.PodIP = corev1.PodRunning, "fd00::7"
	all, err := a.List(t.Context())
	if err != nil || all[0].Phase != actuate.Running || all[0].URL != "http://[fd00::7]:8000" || all[0].Detail != "pod "+p.Name+": CrashLoopBackOff; last exit 137: OOMKilled" || !all[0].Since.Equal(p.CreationTimestamp.Time) {
		t.Errorf("it crashes: %+v, %v", all, err)
	}
	c.evict(p)
	if said := list(t, a)["a"]; said != "pending no pod yet: its pod "+p.Name+" is gone or goes: Evicted: The node was low on resource: memory." && !strings.Contains(said, "exceeded quota") {
		t.Errorf("evicted: %q", said)
	}
	c.quota = 0
	c.settle()
	if said := list(t, a); !strings.HasPrefix(said["a"], "running") || !strings.HasPrefix(said["b"], "running") {
		t.Errorf("at the end: %q", said)
	}
}

// TestRecordLost: the pods say which are nodes when somebody deletes the record.
func TestRecordLost(t *testing.T) {
	c := newCluster(t)
	c.deploy(Deployment, "web", 2)
	a := open(t, c.inMemory(), nil)
	create(t, a, "a", "b")
	c.settle()
	list(t, a) // they get their keys
	delete(c.configs, "warmpath-deployment-web")
	a = open(t, c.inMemory(), nil)
	if said := list(t, a); len(said) != 2 || baseline(t, c) != 2 {
		t.Errorf("with a lost record there are %q and a baseline of %d", said, baseline(t, c))
	}
	remove(t, a, "a")
	if n := *c.deployments["web"].Spec.Replicas; n != 3 {
		t.Errorf("there are %d replicas", n)
	}
	c.configs["warmpath-deployment-web"].Data[recordKey] = "{"
	if _, err := a.List(t.Context()); err == nil || !strings.Contains(err.Error(), "mend it, or delete it") {
		t.Errorf("with a broken record: %v", err)
	}
}

// TestAnotherWorkload: one of the same name that was made anew has none of the nodes.
func TestAnotherWorkload(t *testing.T) {
	c := newCluster(t)
	c.deploy(Deployment, "web", 1)
	a := open(t, c.inMemory(), nil)
	create(t, a, "a")
	delete(c.deployments, "web")
	if err := a.Delete(t.Context(), actuate.Instance{Key: "a"}); err != nil {
		t.Errorf("of a workload that is gone: %v", err)
	}
	if _, err := a.List(t.Context()); actuate.AsRefusal(err) == nil {
		t.Errorf("list of a workload that is gone: %v", err)
	}
	delete(c.replicaSets, "web")
	clear(c.pods)
	c.deploy(Deployment, "web", 3)
	if said := list(t, a); len(said) != 0 {
		t.Errorf("of the workload before there is %q", said)
	}
	create(t, a, "b")
	if n := *c.deployments["web"].Spec.Replicas; n != 4 || baseline(t, c) != 3 {
		t.Errorf("there are %d replicas over a baseline of %d", n, baseline(t, c))
	}
}

func TestStatefulSet(t *testing.T) {
	c := newCluster(t)
	c.deploy(StatefulSet, "web", 1)
	a := open(t, c.inMemory(), func(o *Options) { o.Kind = StatefulSet })
	create(t, a, "a", "b", "c")
	c.events = []corev1.Event{{Reason: "FailedCreate", Message: "create Pod web-1 failed: exceeded quota"}}
	if said := list(t, a)["a"]; said != "pending no pod yet: FailedCreate: create Pod web-1 failed: exceeded quota" {
		t.Errorf("over quota: %q", said)
	}
	c.settle()
	if said := list(t, a); said["a"] != "running pod web-1" || said["c"] != "running pod web-3" {
		t.Errorf("there are %q", said)
	}
	c.evict(c.pods["web-1"])
	list(t, a)
	for _, key := range []string{"a", "b"} {
		err := a.Delete(t.Context(), actuate.Instance{Key: key})
		if refusal := actuate.AsRefusal(err); refusal == nil || refusal.Reason != actuate.Settings || !strings.Contains(err.Error(), "ordinal 3 first") {
			t.Errorf("end %q: %v", key, err)
		}
	}
	c.settle()
	list(t, a)
	remove(t, a, "c")
	remove(t, a, "b") // while the last is still going
	c.settle()
	if said := list(t, a); len(said) != 1 || said["a"] != "running pod web-1" || len(c.pods) != 2 {
		t.Errorf("there are %q and %d pods", said, len(c.pods))
	}
}

func TestAutoscaler(t *testing.T) {
	c := newCluster(t)
	c.deploy(Deployment, "web", 1)
	c.autoscalers = []autoscalingv2.HorizontalPodAutoscaler{{
		ObjectMeta: metav1.ObjectMeta{Name: "cpu"},
		Spec:       autoscalingv2.HorizontalPodAutoscalerSpec{ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}},
	}}
	a := open(t, c.inMemory(), nil)
	_, err := a.Create(t.Context(), actuate.Wanted{Key: "a"})
	if refusal := actuate.AsRefusal(err); refusal == nil || refusal.Reason != actuate.Settings || !strings.Contains(err.Error(), "HorizontalPodAutoscaler inference/cpu scales it") {
		t.Errorf("with an autoscaler: %v", err)
	}
	c.before = func(r *http.Request) *apierrors.StatusError {
		if strings.Contains(r.URL.Path, "horizontal") {
			return apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("you may not look"))
		}
		return nil
	}
	create(t, a, "a")
}

// TestRefusals: what the API server says, in its words, and that nothing stays of it.
func TestRefusals(t *testing.T) {
	group := schema.GroupResource{Resource: "things"}
	for _, c := range []struct {
		verb, resource string
		err            error
		reason         actuate.Reason
		refusal        bool
	}{
		{"get", "deployments", apierrors.NewUnauthorized("no token"), actuate.Credential, true},
		{"get", "configmaps", apierrors.NewForbidden(group, "x", errors.New("no role")), actuate.Credential, true},
		{"create", "configmaps", apierrors.NewForbidden(group, "x", errors.New("exceeded quota: objects")), actuate.Quota, true},
		{"list", "pods", apierrors.NewBadRequest("no such field"), actuate.Settings, true},
		{"update", "deployments", apierrors.NewForbidden(group, "x", errors.New("no leave to scale")), actuate.Credential, true},
		{"update", "deployments", apierrors.NewInvalid(schema.GroupKind{Kind: "Scale"}, "web", nil), actuate.Settings, true},
		{"update", "deployments", apierrors.NewServerTimeout(group, "update", 1), 0, false},
		{"update", "deployments", apierrors.NewInternalError(errors.New("etcd")), 0, false},
		{"list", "replicasets", context.DeadlineExceeded, 0, false},
		{"create", "configmaps", apierrors.NewTooManyRequestsError("slow down"), 0, false},
	} {
		t.Run(c.verb+" "+c.resource+" "+c.err.Error(), func(t *testing.T) {
			there := newCluster(t)
			there.deploy(Deployment, "web", 1)
			refusing := client(t, "http://cluster", transport(func(r *http.Request) (*http.Response, error) {
				if verb, resource := asked(r); verb != c.verb || resource != c.resource {
					return there.RoundTrip(r)
				}
				if status := apierrors.APIStatus(nil); !errors.As(c.err, &status) {
					return nil, c.err
				}
				w := httptest.NewRecorder()
				reply(w, nil, c.err)
				return w.Result(), nil
			}))
			_, err := open(t, refusing, nil).Create(t.Context(), actuate.Wanted{Key: "a"})
			refusal := actuate.AsRefusal(err)
			if (refusal != nil) != c.refusal || refusal != nil && refusal.Reason != c.reason || err == nil || !strings.Contains(err.Error(), c.err.Error()) {
				t.Fatalf("%v, want a refusal: %v for %v", err, c.refusal, c.reason)
			}
			m := there.configs["warmpath-deployment-web"]
			if m != nil && c.refusal && strings.Contains(m.Data[recordKey], `"key"`) {
				t.Errorf("it was refused, and the record is %s", m.Data[recordKey])
			}
		})
	}
}

// TestConflicts: others write between what is read and what is written.
func TestConflicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.deploy(Deployment, "web", 1)
		left := map[string]int{"configmaps": 3, "deployments": 4}
		c.before = func(r *http.Request) *apierrors.StatusError {
			verb, resource := asked(r)
			if verb != "update" && verb != "create" || left[resource] == 0 {
				return nil
			}
			left[resource]--
			return apierrors.NewConflict(schema.GroupResource{Resource: resource}, "x", errors.New("modified"))
		}
		a := open(t, c.inMemory(), nil)
		create(t, a, "a")
		if fmt.Sprint(left) != "map[configmaps:0 deployments:0]" {
			t.Errorf("conflicts left: %v", left)
		}
		if n := *c.deployments["web"].Spec.Replicas; n != 2 {
			t.Errorf("there are %d replicas", n)
		}
		left["configmaps"] = 1000
		began := time.Now()
		_, err := a.Create(t.Context(), actuate.Wanted{Key: "b"})
		if err == nil || actuate.AsRefusal(err) != nil || time.Since(began) > 10*time.Second {
			t.Errorf("with conflicts without end: %v after %v", err, time.Since(began))
		}
	})
}

// TestTimeout: a server that does not answer ends the call, and says nothing of the
// outcome.
func TestTimeout(t *testing.T) {
	c := newCluster(t)
	c.deploy(Deployment, "web", 0)
	release := make(chan struct{})
	c.before = func(r *http.Request) *apierrors.StatusError {
		if strings.HasSuffix(r.URL.Path, "/scale") {
			<-release
		}
		return nil
	}
	a := open(t, c.overHTTP(), func(o *Options) { o.Timeout = 50 * time.Millisecond })
	_, err := a.Create(t.Context(), actuate.Wanted{Key: "a"})
	close(release)
	if err == nil || actuate.AsRefusal(err) != nil || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no answer: %v", err)
	}
	c.mu.Lock()
	c.before = nil
	c.mu.Unlock()
	if said := list(t, a); said["a"] != "pending no pod yet" {
		t.Errorf("what was asked for is %q", said)
	}
}

// TestStepFailsForLong: what each list meets again is said once for each cause, and once
// more when it comes back after a quiet time.
func TestStepFailsForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.deploy(Deployment, "web", 1)
		var log strings.Builder
		a := open(t, c.inMemory(), func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		create(t, a, "a")
		c.settle()
		list(t, a)
		words := func(int) string { return "no leave to scale" }
		asked := 0
		c.before = func(r *http.Request) *apierrors.StatusError {
			if !strings.HasSuffix(r.URL.Path, "/scale") {
				return nil
			}
			asked++
			return apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "x", errors.New(words(asked)))
		}
		*c.deployments["web"].Spec.Replicas = 1 // somebody lowered it, which is put back
		lists := func(n int, every time.Duration, want int) {
			t.Helper()
			before := strings.Count(log.String(), "a step in scaling a workload failed")
			asked = 0
			for range n {
				if said := list(t, a); len(said) != 1 {
					t.Errorf("there are %q", said)
				}
				<-time.After(every)
			}
			if said := strings.Count(log.String(), "a step in scaling a workload failed") - before; said != want || asked < n {
				t.Errorf("%d lists, %d failures: said %d times, want %d: %s", n, asked, said, want, log.String())
			}
		}
		lists(300, 5*time.Second, 1)
		words = func(int) string { return "etcd is full" }
		lists(2, 5*time.Second, 1)
		words = func(n int) string { return fmt.Sprintf("reset on port %d", n) }
		lists(100, 5*time.Second, mostSaid-2)
		<-time.After(quiet)
		words = func(int) string { return "no leave to scale" }
		lists(2, 5*time.Second, 1)
	})
}
