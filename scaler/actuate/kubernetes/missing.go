package kubernetes

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"warmpath/scaler/actuate"
)

// missingAfter is how long a workload must not be there until its nodes are believed to be
// gone with it: kubectl replace --force takes it away and puts it back.
const missingAfter = time.Minute

// seen notes that the workload is there.
func (a *Actuator) seen() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.missing = time.Time{}
}

// gone returns nil if nothing is left of a workload that err says is not there, and else
// why its nodes are not known.
func (a *Actuator) gone(ctx context.Context, err error) error {
	a.mu.Lock()
	if a.missing.IsZero() {
		a.missing = time.Now()
	}
	since := time.Since(a.missing)
	a.mu.Unlock()
	if since < missingAfter {
		return err
	}
	within, cancel := context.WithTimeout(ctx, a.opt.Timeout)
	defer cancel()
	// What its selector was nobody knows any more.
	all, failed := a.opt.Client.Pods(a.opt.Namespace).List(within, metav1.ListOptions{})
	if failed != nil {
		return fmt.Errorf("the workload is missing: look for pods that it left: %w", failed)
	}
	left := 0
	for i := range all.Items {
		if p := (pod{Pod: &all.Items[i]}); !p.over() && a.ours(&p) {
			left++
		}
	}
	if left > 0 {
		return actuate.Refused(actuate.Settings, fmt.Errorf("%w; %d pods of it are left, and cost: end them", errNoWorkload, left))
	}
	a.say(slog.LevelWarn, "a workload is missing, and so are its nodes: make it again, or take the offer out", err)
	return nil
}

// ours reports whether a pod was made for the workload: it carries the fleet's mark, or its
// controller's name says so.
func (a *Actuator) ours(p *pod) bool {
	if p.Annotations[fleetAnnotation] == a.opt.Fleet {
		return true
	}
	owner := metav1.GetControllerOf(p.Pod)
	switch {
	case owner == nil:
		return false
	case a.opt.Kind == StatefulSet:
		return owner.Kind == "StatefulSet" && owner.Name == a.opt.Name
	}
	// A Deployment names its ReplicaSets by the hash that is on their pods.
	return owner.Kind == "ReplicaSet" && owner.Name == a.opt.Name+"-"+p.Labels["pod-template-hash"]
}
