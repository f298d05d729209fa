package ec2

import (
	"errors"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"

	"warmpath/scaler/actuate"
)

// Codes of EC2's errors that are handled by name. Their meanings are those of the page
// "Error codes for the Amazon EC2 API".
const (
	// There was a node by this token, and it has ended.
	codeTokenEnded = "IdempotentInstanceTerminated"
	// The token stands for a request that asked for something else.
	codeTokenOther = "IdempotentParameterMismatch"
	codeNoInstance = "InvalidInstanceID.NotFound"
)

// noRefusals are codes that are none, whatever their names: the first request with the token
// may have made a node, and a list that went stale between two pages can be asked for anew.
var noRefusals = []string{codeTokenOther, "InvalidPaginationToken", "InvalidNextToken"}

// reasons are codes whose names do not say what they are.
var reasons = map[actuate.Reason][]string{
	actuate.Credential: {
		"AuthFailure", "UnauthorizedOperation", "InvalidClientTokenId", "InvalidAccessKeyId", "SignatureDoesNotMatch",
		"IncompleteSignature", "MissingAuthenticationToken", "UnrecognizedClientException", "InvalidSecurity",
		"ExpiredToken", "ExpiredTokenException", "RequestExpired", "AccessDenied", "AccessDeniedException",
		"OptInRequired", "PendingVerification", "Blocked", "AccountDisabled", "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
	},
	actuate.Quota: {
		"MaxSpotInstanceCountExceeded", "ResourceCountExceeded", "VolumeIOPSLimit",
	},
	actuate.Capacity: {
		"UnfulfillableCapacity", "ReservationCapacityExceeded", "SpotMaxPriceTooLow", "ReservedInstancesUnavailable",
		"UnavailableHostRequirements", "IncompatibleHostRequirements",
	},
	actuate.Settings: {
		// Limits of one instance, and of what it is asked to have.
		"SecurityGroupsPerInstanceLimitExceeded", "SecurityGroupsPerInterfaceLimitExceeded", "TagLimitExceeded", "AttachmentLimitExceeded",
		"VPCIdNotSpecified", "VPCResourceNotSpecified", "DefaultVpcDoesNotExist", "OperationNotPermitted", "TagPolicyViolation",
		"ValidationError", "ZonesMismatched", "EncryptedVolumesNotSupported", "BootForVolumeTypeUnsupported",
		"InstanceCreditSpecification.NotSupported", "ClientInvalidParameterValue", "VolumeTypeNotAvailableInZone",
		"UnknownParameter", "UnknownVolumeType", "NonEBSInstance", "CustomerKeyHasBeenRevoked",
	},
}

// reasonOf says why EC2 refuses with a code. To be throttled is no refusal, as the next
// attempt may be taken. What it does not know is none either: the outcome is unknown then,
// and the list will tell. So is that of a failure inside EC2 (failed), but for capacity,
// which it reports with a status of 5xx.
func reasonOf(code string, failed bool) (reason actuate.Reason, refused bool) {
	if _, throttled := retry.DefaultThrottleErrorCodes[code]; throttled || slices.Contains(noRefusals, code) {
		return 0, false
	}
	reason, refused = meaning(code)
	return reason, refused && (!failed || reason == actuate.Capacity)
}

func meaning(code string) (reason actuate.Reason, known bool) {
	for reason, codes := range reasons {
		if slices.Contains(codes, code) {
			return reason, true
		}
	}
	has := func(prefixes ...string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(code, p) })
	}
	switch {
	case strings.HasSuffix(code, "LimitExceeded"):
		return actuate.Quota, true
	case has("Insufficient"):
		return actuate.Capacity, true
	case has("Invalid", "Unsupported", "Missing", "Malformed"):
		return actuate.Settings, true
	}
	return 0, false
}

// said is an error of EC2's without the id of the request: the same failure shall have the
// same words each time, so that whoever is told of it again can see that it is the same.
type said struct {
	error
	words string
}

// Error is what EC2 said.
func (s *said) Error() string { return s.words }

// Unwrap returns the SDK's error.
func (s *said) Unwrap() error { return s.error }

// verdict makes a refusal of an error that says that nothing was done.
func verdict(err error) error {
	if err == nil || actuate.AsRefusal(err) != nil {
		return err
	}
	if none := (*noCredentials)(nil); errors.As(err, &none) {
		return actuate.Refused(actuate.Credential, err)
	}
	var answered interface{ HTTPStatusCode() int }
	failed := errors.As(err, &answered) && answered.HTTPStatusCode() >= 500
	if reason, refused := reasonOf(codeOf(err), failed); refused {
		return actuate.Refused(reason, err)
	}
	return err
}

// codeOf is EC2's name for the error, "" if it is not EC2's.
func codeOf(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}
