import { describe, expect, it } from 'vitest'
import { ContainerPayload, ContainerPayload_Phase } from '../../src/gen/state/container.ts'
import { printState } from '../../src/state/print-state.ts'
import { encodeEnvelope, KINDS, StateStore, UnreadableState } from '../../src/state/state-store.ts'
import { MemoryStateFiles } from '../support/fakes/files/memory-state-files.ts'

const OOM = { waiting: [{ containerId: 'c1', kills: 2n ** 40n, key: 'c0', createdNs: 9n }] }
const waitingFor = (containerId: string) => ({
  waiting: [{ containerId, kills: 1n, key: 'c1', createdNs: 9n }],
})

function storeWith(bytes?: Uint8Array) {
  const files = new MemoryStateFiles()
  if (bytes !== undefined) files.write('oom', bytes)
  return { files, store: new StateStore(files) }
}

describe('StateStore', () => {
  it('returns what was written, with its version', () => {
    const { store } = storeWith()
    store.write(KINDS.oom, 'oom', OOM)
    expect(store.read(KINDS.oom, 'oom')).toEqual({ schemaVersion: 3, ...OOM })
  })

  it('leaves a reserve of room, which is for the values of requests and for the next states of what was begun', () => {
    const { files, store } = storeWith()
    store.write(KINDS.oom, 'oom', OOM)
    files.free = { bytes: 24 * 1024 * 1024, files: 1_000_000 }
    const container = { ...ContainerPayload.create(), id: 'c1' }
    expect(() => store.write(KINDS.container, 'containers/c1/record', container)).toThrow(
      /^state containers\/c1\/record: 25165824 bytes and 1000000 files of room, want \d+ bytes and 8195 files$/,
    )
    files.free = { bytes: 1024 ** 3, files: 8192 }
    expect(() => store.write(KINDS.container, 'containers/c1/record', container)).toThrow(
      '8192 files of room',
    )
    store.write(KINDS.oom, 'oom', waitingFor('c2'))
    const value = { response: new Uint8Array(), outOfMemory: undefined, exit: undefined }
    store.write(KINDS.request, 'requests/7', { request: 7n, ...value })
    const long = waitingFor('x'.repeat(64 * 1024))
    expect(() => store.write(KINDS.oom, 'oom', long)).toThrow('state oom: ')
    expect(store.read(KINDS.oom, 'oom')).toMatchObject(waitingFor('c2'))
  })

  it('looks at the room for a new payload only, also after a removal of its folder', () => {
    const { files, store } = storeWith()
    const write = () => store.write(KINDS.oom, 'folder/oom', OOM)
    write()
    files.free = { bytes: 0, files: 0 }
    write()
    store.remove('folder')
    expect(write).toThrow('0 bytes and 0 files of room')
    files.free = { bytes: 1024 ** 3, files: 1024 ** 2 }
    write()
    files.free = { bytes: 0, files: 0 }
    write()
    store.remove('folder/oom')
    expect(write).toThrow('0 bytes and 0 files of room')
  })

  it('gives the reserve to the next state of a payload of the previous agent', () => {
    const { files, store } = storeWith(encodeEnvelope(KINDS.oom, OOM))
    files.free = { bytes: 0, files: 0 }
    store.write(KINDS.oom, 'oom', waitingFor('c2'))
    expect(store.read(KINDS.oom, 'oom')).toMatchObject(waitingFor('c2'))
  })

  it('gives the reserve to the next states of a long payload too, but to none that grows much', () => {
    const { files, store } = storeWith()
    const write = (length: number) => store.write(KINDS.oom, 'oom', waitingFor('x'.repeat(length)))
    write(100_000)
    files.free = { bytes: 24 * 1024 * 1024, files: 1_000_000 }
    for (const length of [104_000, 90_000, 94_000]) write(length)
    expect(() => write(100_000)).toThrow('state oom: ')
    expect(store.read(KINDS.oom, 'oom')).toMatchObject(waitingFor('x'.repeat(94_000)))
  })

  it('tells a payload that is not there', () => {
    const { store } = storeWith()
    expect(store.read(KINDS.oom, 'oom')).toBeUndefined()
    expect(() => store.require(KINDS.oom, 'oom')).toThrow('state oom: missing')
  })

  it.each([
    ['of another kind', encodeEnvelope(KINDS.policy, { text: '', state: '', allowed: [] }), 'PolicyPayload'],
    ['of a later version', encodeEnvelope({ ...KINDS.oom, version: 4 }, OOM), 'has version 4, want 3'],
    ['that is empty', new Uint8Array(), "is a '', want microvm.state.v1.OomPayload"],
    ['that is cut off', encodeEnvelope(KINDS.oom, OOM).subarray(0, 50), 'state oom: '],
    ['of other bytes', Buffer.from('not protobuf'), 'state oom: '],
  ])('refuses one %s', (_what, bytes, text) => {
    const { store } = storeWith(bytes)
    expect(() => store.read(KINDS.oom, 'oom')).toThrow(text)
    expect(() => store.read(KINDS.oom, 'oom')).toThrow(UnreadableState)
  })

  it('keeps the old payload when a write fails', () => {
    const { files, store } = storeWith()
    store.write(KINDS.oom, 'oom', OOM)
    files.beforeChange = () => {
      throw new Error('ENOSPC')
    }
    expect(() => store.write(KINDS.oom, 'oom', { waiting: [] })).toThrow('ENOSPC')
    expect(store.read(KINDS.oom, 'oom')).toMatchObject(OOM)
  })
})

describe('printState', () => {
  it('prints every payload by its name, and why one cannot be read', () => {
    const { files, store } = storeWith()
    store.write(KINDS.oom, 'oom', OOM)
    store.write(KINDS.spec, 'containers/c1/spec', { spec: undefined })
    files.write('requests/1', Buffer.from('garbage'))
    expect(JSON.parse(printState(files))).toMatchObject({
      oom: {
        schemaVersion: 3,
        waiting: [{ containerId: 'c1', kills: '1099511627776', key: 'c0', createdNs: '9' }],
      },
      'containers/c1/spec': { schemaVersion: 1 },
      'requests/1': { error: expect.any(String) },
    })
  })
})

describe('the phases of a container', () => {
  it('keep their numbers', () => {
    expect(ContainerPayload_Phase).toMatchObject({
      CREATING: 1,
      CREATED: 2,
      STARTING: 3,
      RUNNING: 4,
      PAUSED: 5,
    })
  })
})
