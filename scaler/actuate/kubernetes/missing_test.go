package kubernetes

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"warmpath/scaler/actuate"
)

// TestWorkloadDeleted: a workload that is gone for good has no nodes, once its pods are
// gone too. So says an actuator that saw it before and one that did not.
func TestWorkloadDeleted(t *testing.T) {
	for _, kind := range []string{Deployment, StatefulSet} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testWorkloadDeleted(t, kind) })
		})
	}
}

func testWorkloadDeleted(t *testing.T, kind string) {
	c := newCluster(t)
	c.deploy(kind, "web", 1)
	var log strings.Builder
	opens := func() *Actuator {
		return open(t, c.inMemory(), func(o *Options) { o.Kind, o.Log = kind, slog.New(slog.NewTextHandler(&log, nil)) })
	}
	a := opens()
	create(t, a, "a")
	c.settle()
	list(t, a)
	lists := func(a *Actuator, words string) {
		t.Helper()
		nodes, err := a.List(t.Context())
		switch {
		case words == "" && (err != nil || len(nodes) > 0):
			t.Errorf("%v, %v, want an empty list", nodes, err)
		case words != "" && (actuate.AsRefusal(err) == nil || !strings.Contains(err.Error(), words)):
			t.Errorf("%v, %v, want a refusal with %q", nodes, err, words)
		}
	}
	delete(c.deployments, "web")
	delete(c.sets, "web")
	clear(c.replicaSets)
	lists(a, "not found")
	<-time.After(2 * missingAfter)
	if kind == Deployment { // here ReplicaSets are not named as a cluster's are: the mark is all
		lists(a, "1 pods of it are left")
	}
	unmarked(c)
	lists(a, "2 pods of it are left")
	c.before = func(r *http.Request) *apierrors.StatusError {
		if strings.HasSuffix(r.URL.Path, "/pods") {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("you may not look"))
		}
		return nil
	}
	lists(a, "you may not look")
	c.before = nil
	for _, p := range sorted(c.pods) {
		p.Status.Phase = corev1.PodFailed // it will run no more
	}
	c.makePod("web2-x", nil, controlled("ReplicaSet", "web2-x", "u")) // another's
	c.makePod("alone", nil, nil)
	for range 3 {
		lists(a, "")
	}
	if n := strings.Count(log.String(), "a workload is missing"); n != 1 {
		t.Errorf("it was said %d times: %s", n, log.String())
	}
	if _, err := a.Create(t.Context(), actuate.Wanted{Key: "b"}); actuate.AsRefusal(err) == nil || !errors.Is(err, errNoWorkload) {
		t.Errorf("a node of a workload that is gone: %v", err)
	}
	next := opens()
	lists(next, "not found")
	<-time.After(missingAfter)
	lists(next, "")
	clear(c.pods)
	c.deploy(kind, "web", 1)
	lists(a, "")
	delete(c.deployments, "web")
	delete(c.sets, "web")
	clear(c.pods)
	lists(a, "not found") // it may be put back
}

// unmarked takes the marks off the pods, and gives them names of controllers as the cluster
// gives them.
func unmarked(c *cluster) {
	for _, p := range sorted(c.pods) {
		p.Annotations = nil
		if owner := &p.OwnerReferences[0]; owner.Kind == "ReplicaSet" {
			owner.Name = "web-5d9f"
			p.Labels = map[string]string{"pod-template-hash": "5d9f"}
		}
	}
}
