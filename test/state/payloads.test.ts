import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { MemAgentCompactConfig, MemAgentMemcgConfig, Storage } from '../../src/gen/agent.ts'
import { GetResumeResponse, ResumedRequest } from '../../src/gen/microvm/agent/v1/lifecycle.ts'
import { Hook, Spec } from '../../src/gen/oci.ts'
import { decodeEnvelope, encodeEnvelope, KINDS, type PayloadKind } from '../../src/state/state-store.ts'

/** State files in Base64, by kind: of the present versions, and of earlier ones, which are refused by their version. */
const RECORDED = fixture('recorded')
const REFUSED = fixture('refused')

function fixture(name: string): Readonly<Record<string, string>> {
  return JSON.parse(readFileSync(new URL(`../fixtures/state/${name}.json`, import.meta.url), 'utf8'))
}

const hook = (Path: string) => Hook.fromPartial({ Path, Args: [Path, 'x'], Env: ['A=b'], Timeout: 10n })
const process = (execId: string, key: string, pid: number) => ({
  execId,
  key,
  hasTerminal: execId !== '',
  request: 7n,
  pid,
  beganNs: 123450000000n,
  forgotten: pid === 42,
})
/** What the fixtures are the bytes of. */
const PAYLOADS = {
  container: {
    cgroupPath: '/containers/c1',
    phase: 4,
    request: 2n ** 40n + 5n,
    storages: ['/run/kata-containers/c1/rootfs'],
    sysctls: [{ path: '/proc/sys/net/core/somaxconn', before: '128' }],
    vfioDevices: ['0000:00:05.0'],
    pidNamespace: '/run/sandbox-ns/pid',
    startContainer: [hook('/a')],
    poststart: [hook('/b')],
    hooksBegun: 1,
    pciAddresses: { '0000:3b:00.0': '0000:00:05.0' },
    hasSharedMounts: true,
    programBeforeStart: '/usr/sbin/runc',
    init: process('', 'p1', 42),
    oomKills: 3n,
    key: 'c0',
    createdNs: 2n ** 50n,
  },
  exec: { process: process('e1', 'p2', 43) },
  spec: {
    spec: Spec.fromPartial({
      Version: '1.0.2',
      Hostname: 'pod',
      Process: { Args: ['sh'], Cwd: '/' },
      Linux: { CgroupsPath: '/containers/c1' },
    }),
  },
  sandbox: {
    phase: 2,
    request: 9n,
    id: 'pod',
    storages: ['/run/kata-containers/sandbox/shm'],
    prestart: [hook('/p')],
    poststart: [],
    poststop: [hook('/q')],
  },
  storage: {
    mountPoint: '/run/kata-containers/sandbox/shm',
    requested: [
      Storage.fromPartial({
        driver: 'blk',
        source: '02/01',
        fstype: 'ext4',
        options: ['ro'],
        mountPoint: '/run/kata-containers/sandbox/shm',
      }),
    ],
    owner: 'c1',
    shared: true,
    warned: true,
    phase: 2,
    kind: 'mount',
    keep: true,
    device: '/dev/vdb',
    undo: { pages: '3' },
  },
  oom: {
    waiting: [
      { containerId: 'c1', kills: 1n, key: 'c0', createdNs: 5n },
      { containerId: 'c2', kills: 2n ** 40n, key: 'c2', createdNs: 2n ** 50n },
    ],
  },
  request: { request: 12n, response: new Uint8Array([8, 1]) },
  outcome: {
    number: 2n ** 63n + 5n,
    idempotencyKey: 'k1',
    method: 'grpc.AgentService/WaitProcess',
    digest: new Uint8Array(32).fill(7),
    code: 'OK',
    response: new Uint8Array([8, 1]),
    message: '',
    omittedBytes: 0n,
  },
  copy: {
    path: ['c1-hosts', 'hosts'],
    temporaryName: '.copyfile-0123',
    inode: 77n,
    sizeBytes: 2n ** 33n,
    arrivedBytes: 2n ** 32n,
    parentsMade: 1,
    request: 13n,
  },
  policy: { text: 'package agent_policy', state: '{"pstate":{"n":1}}', allowed: [13n, 14n] },
  events: { reserved: 4096n },
  names: {
    sandboxId: 'other',
    containers: [{ key: 'c0', createdNs: 2n ** 50n, id: 'c1', former: ['b1'] }],
    request: 15n,
    calls: [{ request: 14n, containerId: 'b1', key: 'c0' }],
    before: {
      hostnames: [{ key: '', name: 'pod' }],
      files: [{ path: '/run/hosts', content: new TextEncoder().encode('127.0.0.1 pod\n') }],
      mountsResolvConf: true,
    },
  },
  guest: {
    reclaim: MemAgentMemcgConfig.create({ disabled: true, swappinessMax: 0, periodSecs: 600n }),
    compact: MemAgentCompactConfig.create({ compactThreshold: 2n ** 64n - 1n }),
  },
  lifecycle: {
    repairs: [
      {
        told: GetResumeResponse.fromPartial({
          ...{ number: 1n, generation: 'g1', trigger: 'call', state: 'running', clockStepMs: -5n },
          steps: [{ name: 'randomness', state: 'done', durationMs: 3n }],
        }),
        request: ResumedRequest.fromPartial({
          generation: 'g1',
          timeNs: 2n ** 60n,
          identity: { hostname: 'b' },
        }),
        askedNs: 2n ** 50n,
        peer: 'vsock:2:1024',
      },
    ],
    detachedUntilNs: 2n ** 51n,
    kernelLine: 812n,
    kernelLogFromUs: 31n,
    clock: { source: 'rtc', hostMs: 2n ** 40n, monotonicMs: 5n, realMs: 2n ** 40n + 1n },
  },
  network: {
    settings: [{ kind: 'route', subject: '0.0.0.0/0', value: 'via 10.0.0.1 dev eth0', source: 'metadata' }],
    isCut: true,
  },
}

describe.each(Object.entries(PAYLOADS))('a recorded %s', (name, payload) => {
  const kind = Object.entries(KINDS).find(([key]) => key === name)?.[1] as PayloadKind<{
    schemaVersion: number
  }>
  const recorded = new Uint8Array(Buffer.from(RECORDED[name] ?? '', 'base64'))

  it('is read as it was written', () => {
    expect(decodeEnvelope(kind, recorded)).toEqual({ schemaVersion: kind.version, ...payload })
  })

  it('is written to the same bytes', () => {
    expect(encodeEnvelope(kind, payload)).toEqual(recorded)
  })

  it('is refused when a bit of it is another one, if it tells anything else then', () => {
    for (let bit = 0; bit < recorded.length * 8; bit++) {
      const damaged = Uint8Array.from(recorded)
      damaged[bit >> 3] = (damaged[bit >> 3] ?? 0) ^ (1 << (bit & 7))
      let read: unknown
      try {
        read = decodeEnvelope(kind, damaged)
      } catch {
        continue
      }
      expect(read).toEqual({ schemaVersion: kind.version, ...payload })
    }
  })

  it('is refused when it is cut off', () => {
    for (let length = 0; length < recorded.length; length++) {
      expect(() => decodeEnvelope(kind, recorded.subarray(0, length))).toThrow()
    }
  })
})

it('there is a recorded payload of every kind', () => {
  expect(Object.keys(RECORDED).sort()).toEqual(Object.keys(KINDS).sort())
})

it('a container of version 1, whose record had the added processes, is refused', () => {
  const recorded = new Uint8Array(Buffer.from(REFUSED.container ?? '', 'base64'))
  expect(() => decodeEnvelope(KINDS.container, recorded)).toThrow('has version 1, want 6')
})
