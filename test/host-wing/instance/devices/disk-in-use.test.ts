import { expect, it } from 'vitest'
import { AgentError } from '../../../../src/base/errors.ts'
import { State } from '../../../../src/gen/microvm/instance/v1/instance.ts'
import {
  DocumentRecord,
  InstanceRecord,
  StepRecord,
} from '../../../../src/gen/microvm/instance/v1/records.ts'
import {
  explainDisk,
  refuseServed,
  refuseWritten,
} from '../../../../src/host/instance/devices/disk-in-use.ts'
import { file, specification } from '../../../support/wing/requests.ts'

const disk = (url: string, access = 'read-write') =>
  DocumentRecord.fromPartial({
    backends: JSON.stringify({ 'disk0-backend': { kind: 'network-disk', url, access } }),
  })

const URL = 'iscsi://host/iqn.2026-11.example:disk/1'

/** An instance that is stopped, beside one that is being made; `steps`: what its stop has left. */
function others(steps: readonly string[], url = URL) {
  const record = InstanceRecord.fromPartial({
    current: State.STOPPED,
    document: disk(url),
    specification: specification({ backends: { root: file('/web.img') } }),
  })
  const recorded = { steps: steps.map((step) => StepRecord.fromPartial({ step })) }
  const user = { key: 'web', record, recorded, context: { machine: undefined }, all: () => [user] }
  const asking = { ...user, key: 'other', all: () => [user] }
  return { user, asking }
}

it('a disk is still used by an instance whose processes could not be ended', () => {
  const { asking: first } = others([])
  expect(() => refuseServed(disk(URL), first, new Map())).not.toThrow()
  expect(() => refuseWritten({ root: file('/web.img') }, first)).not.toThrow()
  const { asking } = others(['holder'])
  expect(() => refuseServed(disk(URL), asking, new Map())).toThrow('instance web has this disk')
  expect(() => refuseWritten({ root: file('/web.img') }, asking)).toThrow('instance web may write it')
})

it('a lock that another machine has is told with its name, also where QEMU does not say the disk', () => {
  const { asking, user } = others(['holder'])
  const error = new AgentError('INTERNAL', 'cont: Failed to get "write" lock')
  const running = { ...user, context: { machine: {} } }
  expect(explainDisk(error, { ...asking, all: () => [running] })).toMatchObject({
    code: 'FAILED_PRECONDITION',
    message: '/web.img: in use by instance web',
  })
  expect(explainDisk(error, { ...asking, all: () => [] })).toMatchObject({
    code: 'FAILED_PRECONDITION',
    message: '/web.img: in use by another process',
  })
})

it('a clone that runs writes to its own layers, and not to the file that is below them', () => {
  const { asking, user } = others(['holder'])
  const layers = [{ id: 1, base: '/web.img', backend: 'root', active: true }]
  const besides = (change: object) => {
    const other = { ...user, record: InstanceRecord.fromPartial({ ...user.record, ...change }) }
    return { ...asking, all: () => [other] }
  }
  const refused = (change: object) => () => refuseWritten({ root: file('/web.img') }, besides(change))
  expect(refused({ clone: true, layers })).not.toThrow()
  expect(refused({ clone: true })).toThrow('instance web may write it')
  // Another machine merges its layers into it.
  expect(refused({ layers })).toThrow('instance web may write it')
})

it.each(['iscsi://HOST/iqn.2026-11.Example:disk/01', 'iscsi://host:3260/iqn.2026-11.example:disk/1'])(
  'a unit of a server is one disk also as %s',
  (url) => {
    const { asking } = others(['holder'])
    expect(() => refuseServed(disk(url), asking, new Map())).toThrow('instance web has this disk')
    expect(() =>
      refuseServed(disk(url.replace('host', 'other').replace('HOST', 'other')), asking, new Map()),
    ).not.toThrow()
  },
)

it.each([
  ['nbds://HOST:10809/disk', true],
  ['nbds://host/Disk', false],
  ['nbds://host:10810/disk', false],
])('an export of a server is the disk nbds://host/disk also as %s: %s', (url, isSame) => {
  const { asking } = others(['holder'], 'nbds://host/disk')
  const refused = expect(() => refuseServed(disk(url), asking, new Map()))
  if (isSame) refused.toThrow('instance web has this disk')
  else refused.not.toThrow()
})
