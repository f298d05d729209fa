// Package kubernetes makes nodes of the replicas of one Deployment or StatefulSet: it
// asks for one more through the scale subresource, and ends the very one that it is told
// to by its pod's deletion cost. What a pod runs is the workload's own template.
//
// # What it writes down, and where
//
// All it knows is in the cluster. A ConfigMap beside the workload, which the workload
// owns (recordName), holds the fleet, the baseline, and for each node its key, its stage
// and its pod. It is no annotation of the workload, because kubectl rollout undo puts the
// annotations of an older revision back, and kubectl replace takes them away: nodes would
// be forgotten. It holds MaxNodes nodes of at most 430 bytes, of the 1 MiB that a
// ConfigMap may have. The pods carry their keys too (keyAnnotation), for people, and so
// that a ConfigMap that somebody deleted is made again.
//
// The baseline is what the workload's replicas were when the fleet asked for its first
// node. It is the user's, and so are the pods that were there, and those that the
// cluster makes in their place: they are no nodes, and never ended. What somebody adds to
// the replicas later is added to the baseline. What somebody takes away is put back while
// there are nodes, as kubectl apply takes away without meaning it; while there is none it
// is taken from the baseline. At rest
//
//	replicas = baseline + nodes
//
// and that is written, never "one more" or "one less", so that doing it twice does it
// once. Each write of the ConfigMap and of the scale names the version that was read.
//
// A key is a place among the replicas. If its pod is evicted, the cluster makes another,
// which gets the key, and until then the node is Pending again: it is not Ended, as it
// will cost again. So are its ID, which does not name the pod, and what Create promises.
// A workload is of one fleet; another's is refused. One that is missing for a minute, with
// none of its pods left, has no nodes any more; until then nobody knows.
//
// # How a node is ended
//
//  1. its stage becomes "ending" in the ConfigMap: from here on anybody finishes it;
//  2. its pod gets the lowest deletion cost;
//  3. half a second later, so that the controller has seen that, its stage becomes
//     "leaving", which no longer counts as a replica;
//  4. the scale is lowered to what then counts;
//  5. it is forgotten when its pod is.
//
// After a crash between any two of them the next call of any kind goes on where it
// stopped. The cost comes before the lowering because the controller acts on the
// lowering at once; the stage comes before the cost because a low cost that nobody knows
// of would end that pod in another's place.
//
// Deletion costs are a hint. The documentation of Kubernetes on ReplicaSets says that
// they are honoured on a best-effort basis, with no guarantee of the order; they are
// beta and on by default since 1.22, from -2147483648 to 2147483647, 0 without one. They
// come only fourth in the order in which a ReplicaSet ends pods: those on no machine, those
// that do not run, and those that are not ready go first, whatever their cost
// (kubernetes/pkg/controller, ActivePodsWithRanks). Where another pod would go first, and
// where the controller took another all the same, this package deletes the pod itself,
// by its UID; the ReplicaSet then makes one for whoever lost his. While a rollout is under
// way a lowering is shared out between two ReplicaSets, so nothing is ended then, and
// Delete says why.
//
// A StatefulSet always ends the pod with the highest ordinal. Delete of any other node is
// refused; ending the youngest first works.
//
// # What it needs
//
//	apiVersion: rbac.authorization.k8s.io/v1
//	kind: Role
//	metadata: {name: warmpath-scaler, namespace: inference}
//	rules:
//	  - {apiGroups: [apps], resources: [deployments, statefulsets], verbs: [get]}
//	  - {apiGroups: [apps], resources: [deployments/scale, statefulsets/scale], verbs: [update]}
//	  - {apiGroups: [apps], resources: [replicasets], verbs: [list]}
//	  - {apiGroups: [""], resources: [pods], verbs: [list, patch, delete]}
//	  - {apiGroups: [""], resources: [configmaps], verbs: [get, create, update]}
//	  - {apiGroups: [autoscaling], resources: [horizontalpodautoscalers], verbs: [list]} # optional
//	  - {apiGroups: [""], resources: [events], verbs: [list]} # optional, for StatefulSets
//
// Without leave to list autoscalers nobody notices one that works against it; without
// leave to list events it is not said why a StatefulSet makes no pod. Without leave to
// patch or delete pods no node can be ended.
//
// It may assume that one router at a time scales a workload; while another takes over,
// calls of both may mix. It never ends a pod that is no node, never changes the
// workload but for its replicas, and never watches: it looks when it is asked.
package kubernetes
