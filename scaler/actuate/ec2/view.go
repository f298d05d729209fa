package ec2

import (
	"net"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"warmpath/scaler/actuate"
)

const mostDetail = 512 // bytes

// phases of states. A stopped instance is not Ended: its disks are there and cost, and
// anybody can start it again. As Ending it makes the caller end it, and then it is gone.
// EC2 may add states: one that is not known costs, for all that is known.
var phases = map[types.InstanceStateName]actuate.Phase{
	types.InstanceStateNamePending:      actuate.Pending,
	types.InstanceStateNameRunning:      actuate.Running,
	types.InstanceStateNameStopping:     actuate.Ending,
	types.InstanceStateNameStopped:      actuate.Ending,
	types.InstanceStateNameShuttingDown: actuate.Ending,
	types.InstanceStateNameTerminated:   actuate.Ended,
}

func stateOf(i *types.Instance) types.InstanceStateName {
	if i.State == nil {
		return ""
	}
	return i.State.Name
}

// ends reports whether an instance was told to end for good.
func ends(i *types.Instance) bool {
	return stateOf(i) == types.InstanceStateNameShuttingDown || stateOf(i) == types.InstanceStateNameTerminated
}

// ours reports whether an instance carries the fleet's mark. EC2 was asked for those only;
// it is looked at once more because others would be ended for it.
func (o *Options) ours(i *types.Instance) bool { return tagOf(i, tagFleet) == o.Fleet }

func tagOf(i *types.Instance, name string) string {
	for _, tag := range i.Tags {
		if aws.ToString(tag.Key) == name {
			return aws.ToString(tag.Value)
		}
	}
	return ""
}

// instance is a node as EC2 knows it.
func (o *Options) instance(i *types.Instance) actuate.Instance {
	phase, known := phases[stateOf(i)]
	if !known {
		phase = actuate.Running
	}
	is := actuate.Instance{
		Key: tagOf(i, tagKey), ID: aws.ToString(i.InstanceId), Phase: phase,
		URL: o.url(i), Detail: detail(i), Since: aws.ToTime(i.LaunchTime),
	}
	if is.Key != "" && actuate.CheckKey(is.Key) != nil { // somebody else has put it there
		is.Key, is.Detail = "", strings.Trim("its tag "+tagKey+" is "+strconv.Quote(is.Key)+", which is no key; "+is.Detail, "; ")
	}
	is.Detail = strings.ToValidUTF8(is.Detail[:min(len(is.Detail), mostDetail)], "")
	return is
}

// url is where the engine is, "" as long as the instance has no such address.
func (o *Options) url(i *types.Instance) string {
	ip := aws.ToString(i.PrivateIpAddress)
	if o.Address == Public {
		ip = aws.ToString(i.PublicIpAddress)
	}
	if ip == "" {
		return ""
	}
	return "http://" + net.JoinHostPort(ip, strconv.Itoa(o.Port))
}

// detail is why an instance is in its state, in EC2's words.
func detail(i *types.Instance) string {
	var words []string
	switch name := stateOf(i); name {
	case types.InstanceStateNamePending, types.InstanceStateNameRunning:
	case types.InstanceStateNameStopped, types.InstanceStateNameStopping:
		words = append(words, string(name)+", and its disks cost until it is ended")
	default:
		words = append(words, string(name))
	}
	if i.StateReason != nil {
		code, message := aws.ToString(i.StateReason.Code), aws.ToString(i.StateReason.Message)
		if !strings.Contains(message, code) {
			message = strings.Trim(code+": "+message, ": ")
		}
		words = append(words, message)
	}
	words = append(words, aws.ToString(i.StateTransitionReason))
	said := ""
	for _, w := range words {
		switch {
		case w == "":
		case said == "":
			said = w
		default:
			said += "; " + w
		}
	}
	return said
}
