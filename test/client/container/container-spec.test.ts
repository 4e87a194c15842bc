import { describe, expect, it } from 'vitest'
import {
  type ContainerRequest,
  containerSpec,
  mergeEnv,
} from '../../../src/client/container/container-spec.ts'

const request: ContainerRequest = {
  id: 'c1',
  args: ['sh', '-c', 'true'],
  env: ['A=1'],
  cwd: '/work',
  user: { uid: 0, gid: 0, additionalGids: [5] },
  terminal: undefined,
  hostname: 'host',
  rootPath: '/run/kata-containers/c1/rootfs',
}

describe('containerSpec', () => {
  it('runs the requested command as the requested user', () => {
    const { Process, Root, Hostname } = containerSpec(request)
    expect(Process).toMatchObject({ Args: ['sh', '-c', 'true'], Cwd: '/work', Terminal: false })
    expect(Process?.User).toMatchObject({ UID: 0, GID: 0, AdditionalGids: [5] })
    expect([Root?.Path, Hostname]).toEqual(['/run/kata-containers/c1/rootfs', 'host'])
  })

  it("names limits and the OOM adjustment, so that the agent's are not inherited", () => {
    const { Process } = containerSpec(request)
    expect(Process?.OOMScoreAdj).toBe(0n)
    expect(Process?.Rlimits).toEqual([{ Type: 'RLIMIT_NOFILE', Soft: 1024n, Hard: 524_288n }])
  })

  it('gives a terminal its size and TERM', () => {
    const { Process } = containerSpec({ ...request, terminal: { rows: 40, columns: 100 } })
    expect(Process?.ConsoleSize).toEqual({ Height: 40, Width: 100 })
    expect(Process?.Env).toContain('TERM=xterm')
  })

  it('gives capabilities to root at once, and none to other users', () => {
    const of = (uid: number) => {
      const user = { uid, gid: uid, additionalGids: [] }
      return containerSpec({ ...request, user }).Process?.Capabilities
    }
    expect(of(0)?.Effective).toContain('CAP_CHOWN')
    expect(of(1000)?.Effective).toEqual([])
    expect(of(1000)?.Bounding).toContain('CAP_CHOWN')
  })

  it('orders mounts so that no later one hides an earlier one', () => {
    const paths = containerSpec(request).Mounts.map((mount) => mount.destination)
    const expected = ['/proc', '/dev', '/dev/pts', '/dev/shm', '/dev/mqueue', '/sys', '/sys/fs/cgroup']
    expect(paths).toEqual(expected)
  })

  it('masks files about the whole guest, and leaves the pid namespace to the agent', () => {
    const { Linux } = containerSpec(request)
    expect(Linux?.MaskedPaths).toContain('/proc/kcore')
    expect(Linux?.ReadonlyPaths).toContain('/proc/sys')
    expect(Linux?.Namespaces.map((namespace) => namespace.Type)).toEqual(['mount', 'ipc', 'uts', 'cgroup'])
  })
})

describe('mergeEnv', () => {
  it('keeps the last value of a name in the place of the first', () => {
    expect(mergeEnv(['PATH=/a', 'B=1', 'PATH=/b=c'])).toEqual(['PATH=/b=c', 'B=1'])
  })
})
