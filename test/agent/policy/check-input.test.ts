import { describe, expect, it } from 'vitest'
import { checkInput } from '../../../src/agent/policy/check-input.ts'
import * as agent from '../../../src/gen/agent.ts'
import { messageFields, REQUESTS } from '../../../src/gen/message-fields.ts'
import { LinuxSyscall, POSIXRlimit, Spec } from '../../../src/gen/oci.ts'

describe('the generated fields', () => {
  it('have the names of the generated messages', () => {
    for (const { fullName, methods } of [agent.AgentServiceDefinition]) {
      for (const { name, requestType } of Object.values(methods)) {
        const fields = messageFields()[REQUESTS[`${fullName}/${name}`] ?? ''] ?? []
        const known = Object.keys(requestType.decode(new Uint8Array()))
        expect(fields.map(({ property }) => property)).toEqual(known)
      }
    }
  })

  it.each([
    ['grpc.Spec', Spec],
    ['grpc.LinuxSyscall', LinuxSyscall],
    ['grpc.Storage', agent.Storage],
    ['grpc.Device', agent.Device],
  ] as const)('have the names of %s, too', (message, type) => {
    const known = Object.keys(type.decode(new Uint8Array()))
    expect(messageFields()[message]?.map(({ property }) => property)).toEqual(known)
  })
})

describe('the input of a check', () => {
  it('has 64-bit numbers with all their digits', () => {
    const limit = POSIXRlimit.create({ Type: 'RLIMIT_CORE', Hard: 2n ** 64n - 1n })
    expect(checkInput('grpc.POSIXRlimit', limit)).toBe(
      '{"Type":"RLIMIT_CORE","Hard":18446744073709551615,"Soft":0}',
    )
  })

  it('names the member of a oneof inside of it', () => {
    const members = '{"Names":["a"],"Action":"","Args":[]'
    const rule = LinuxSyscall.create({ Names: ['a'], errnoret: 0 })
    expect(checkInput('grpc.LinuxSyscall', rule)).toBe(`${members},"ErrnoRet":{"errnoret":0}}`)
    const bare = LinuxSyscall.create({ Names: ['a'] })
    expect(checkInput('grpc.LinuxSyscall', bare)).toBe(`${members},"ErrnoRet":null}`)
  })

  it('shows maps as objects, and keeps texts unchanged', () => {
    const spec = Spec.create({ Annotations: { 'a"b': '\n\u2028', constructor: 'x' } })
    expect(JSON.parse(checkInput('grpc.Spec', spec)).Annotations).toEqual({
      'a"b': '\n\u2028',
      constructor: 'x',
    })
  })

  it('shows the enums and messages in lists', () => {
    const storage = agent.Storage.create({ fsGroup: { groupId: 7, groupChangePolicy: 1 }, shared: true })
    const request = agent.UpdateEphemeralMountsRequest.create({ storages: [storage] })
    expect(JSON.parse(checkInput('grpc.UpdateEphemeralMountsRequest', request)).storages).toEqual([
      {
        ...{ driver: '', driver_options: [], source: '', fstype: '', options: [], mount_point: '' },
        ...{ fs_group: { group_id: 7, group_change_policy: 1 }, shared: true },
      },
    ])
  })

  it('leaves out the bytes of a field that no rule reads', () => {
    const request = agent.WriteStreamRequest.create({ containerId: 'c', data: Buffer.from('ab') })
    const start = '{"container_id":"c","exec_id":"","data":'
    expect(checkInput('grpc.WriteStreamRequest', request)).toBe(`${start}[97,98]}`)
    expect(checkInput('grpc.WriteStreamRequest', request, 'data')).toBe(`${start}null}`)
  })

  it.each([
    { fileMode: 0o100644, type: 'Regular', target: null },
    { fileMode: 0o040755, type: 'Directory', target: null },
    { fileMode: 0o120777, type: 'Symlink', target: '..data/ä' },
    { fileMode: 0o010644, type: 'Unknown', target: null },
    { fileMode: 0o644, type: 'Unknown', target: null },
  ])('describes CopyFile with mode $fileMode as a $type without data', ({ fileMode, type, target }) => {
    const request = agent.CopyFileRequest.create({ path: '/p', fileMode, data: Buffer.from('..data/ä') })
    expect(JSON.parse(checkInput('grpc.CopyFileRequest', request))).toEqual({
      ...{ path: '/p', file_type: type, symlink_target: target, file_mode: fileMode },
      ...{ file_size: 0, dir_mode: 0, uid: 0, gid: 0, offset: 0 },
    })
  })

  it('refuses CopyFile of a link whose target is not UTF-8, because its rule would see another target', () => {
    const request = agent.CopyFileRequest.create({ fileMode: 0o120777, data: Buffer.from([0xff]) })
    expect(() => checkInput('grpc.CopyFileRequest', request)).toThrow(
      'data: the target of the link is not UTF-8',
    )
  })
})
