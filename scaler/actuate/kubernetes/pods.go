package kubernetes

import (
	"cmp"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// lowestCost ends a pod before all others that run and are ready.
const lowestCost = math.MinInt32

// pod is a pod of the workload.
type pod struct {
	*corev1.Pod
	owner types.UID // its ReplicaSet, or the StatefulSet
}

// active reports whether its controller counts it as a replica.
func (p pod) active() bool { return p.DeletionTimestamp == nil && !p.over() }

// over reports whether it will run no more: it was evicted, or its machine shut down.
func (p pod) over() bool {
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

func (p pod) ready() bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// cost is its deletion cost; the controller takes one that it cannot read as 0.
func (p pod) cost() int {
	n, err := strconv.ParseInt(p.Annotations[corev1.PodDeletionCost], 10, 32)
	if err != nil {
		return 0
	}
	return int(n)
}

// ordinal is its number in a StatefulSet, -1 if it has none.
func (p pod) ordinal() int {
	n, err := strconv.Atoi(p.Name[strings.LastIndexByte(p.Name, '-')+1:])
	if err != nil {
		return -1
	}
	return n
}

// classes are what a ReplicaSet looks at before it looks at costs, least first.
func (p pod) classes() (assigned, phase, ready int) {
	if p.Spec.NodeName != "" {
		assigned = 1
	}
	switch p.Status.Phase {
	case corev1.PodUnknown:
		phase = 1
	case corev1.PodRunning:
		phase = 2
	}
	if p.ready() {
		ready = 1
	}
	return assigned, phase, ready
}

// class orders p and q by what a ReplicaSet looks at first.
func (p pod) class(q pod) int {
	assigned, phase, ready := p.classes()
	otherAssigned, otherPhase, otherReady := q.classes()
	return cmp.Or(cmp.Compare(assigned, otherAssigned), cmp.Compare(phase, otherPhase), cmp.Compare(ready, otherReady))
}

// endsBefore reports whether a ReplicaSet that lowers its replicas would end p, at the
// lowest cost, for certain rather than q as it is.
func (p pod) endsBefore(q pod) bool {
	class := p.class(q)
	return class < 0 || class == 0 && q.cost() > lowestCost
}

// sortPods puts those that were made first in front; a StatefulSet's by ordinal.
func sortPods(pods []pod, kind string) {
	slices.SortFunc(pods, func(p, q pod) int {
		if kind == StatefulSet {
			return cmp.Compare(p.ordinal(), q.ordinal())
		}
		return cmp.Or(p.CreationTimestamp.Compare(q.CreationTimestamp.Time), strings.Compare(p.Name, q.Name))
	})
}

// url is where its engine is, "" if that is not known yet.
func (p pod) url(port string) string {
	if port == "" || p.Status.PodIP == "" {
		return ""
	}
	if _, err := strconv.Atoi(port); err != nil {
		number := p.portNamed(port)
		if number == 0 {
			return ""
		}
		port = strconv.Itoa(number)
	}
	return "http://" + net.JoinHostPort(p.Status.PodIP, port)
}

func (p pod) portNamed(name string) int {
	for i := range p.Spec.Containers {
		for _, port := range p.Spec.Containers[i].Ports {
			if port.Name == name {
				return int(port.ContainerPort)
			}
		}
	}
	return 0
}

// detail is what the cluster says about it, "" if it is well.
func (p pod) detail() string {
	var said []string
	say := func(reason, message string) {
		if text := words(reason, message); text != "" && !slices.Contains(said, text) {
			said = append(said, text)
		}
	}
	say(p.Status.Reason, p.Status.Message)
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse || c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			say(c.Reason, c.Message)
		}
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			say(w.Reason, w.Message)
		}
		if t := c.LastTerminationState.Terminated; t != nil && !c.Ready {
			say("last exit "+strconv.Itoa(int(t.ExitCode)), words(t.Reason, t.Message))
		}
	}
	return strings.Join(said, "; ")
}

// words joins a reason and a message of the cluster's.
func words(reason, message string) string {
	switch {
	case reason == "":
		return message
	case message == "":
		return reason
	}
	return reason + ": " + message
}

// ownedBy returns the UID of the object's controller if it is of that kind.
func ownedBy(m *metav1.ObjectMeta, kind string) types.UID {
	if o := metav1.GetControllerOf(m); o != nil && o.Kind == kind {
		return o.UID
	}
	return ""
}
