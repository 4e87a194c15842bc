// Frames as containerd's ttRPC client for Go (1.1.1) sent them.

/** Stream 1: test.Echo/Echo with a StringValue "hello", a deadline in 90 s and a traceparent as metadata. */
export const GO_REQUEST = Buffer.from(
  '000000690000000101000a09746573742e4563686f12044563686f1a070a0568656c6c6f209998aba3cf022a460a0b747261636570617265' +
    '6e74123730302d30616637363531393136636434336464383434386562323131633830333139632d62376164366237313639323033333331' +
    '2d3031',
  'hex',
)

/** Stream 3: test.Echo/Echo with an empty message, no deadline, no metadata. */
export const GO_REQUEST_WITHOUT_PAYLOAD = Buffer.from(
  '000000110000000301000a09746573742e4563686f12044563686f',
  'hex',
)

/** Stream 5: a service that does not exist. */
export const GO_REQUEST_TO_UNKNOWN_SERVICE = Buffer.from(
  '000000140000000501000a0c746573742e4e6f7468696e6712044563686f',
  'hex',
)
