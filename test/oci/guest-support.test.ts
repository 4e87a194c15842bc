import { describe, expect, it } from 'vitest'
import { type DeepPartial, LinuxResources, Process, Spec } from '../../src/gen/oci.ts'
import {
  type GuestSupport,
  supportedProcess,
  supportedResources,
  supportedSpec,
} from '../../src/oci/guest-support.ts'

const NOTHING: GuestSupport = {
  apparmorProfiles: new Set(),
  hasSelinux: false,
  maxOpenFiles: 1_048_576n,
  hugePageSizes: new Set(),
  seccompFlags: new Set(),
}

function supported(given: DeepPartial<Spec>, support: Partial<GuestSupport> = {}) {
  const told: string[] = []
  const spec = supportedSpec(Spec.fromPartial(given), { ...NOTHING, ...support }, (...parts) =>
    told.push(parts.join(': ')),
  )
  return { spec, told }
}

describe('supportedSpec', () => {
  const PROFILE = 'cri-containerd.apparmor.d'

  it('drops an AppArmor profile that the guest has not loaded', () => {
    const { spec, told } = supported({ Process: { ApparmorProfile: PROFILE } })
    expect(spec.Process?.ApparmorProfile).toBe('')
    expect(told).toEqual([`process.apparmorProfile: ${PROFILE}: not loaded in the guest`])
  })

  it('keeps one that is loaded', () => {
    const apparmorProfiles = new Set([PROFILE])
    const { spec, told } = supported({ Process: { ApparmorProfile: PROFILE } }, { apparmorProfiles })
    expect(spec.Process?.ApparmorProfile).toBe(PROFILE)
    expect(told).toEqual([])
  })

  const LABEL = 'system_u:system_r:container_t:s0'
  it.each([
    [false, '', 2],
    [true, LABEL, 0],
  ])('keeps SELinux labels only with SELinux: %s', (hasSelinux, expected, count) => {
    const given = { Process: { SelinuxLabel: LABEL }, Linux: { MountLabel: LABEL } }
    const { spec, told } = supported(given, { hasSelinux })
    expect([spec.Process?.SelinuxLabel, spec.Linux?.MountLabel]).toEqual([expected, expected])
    expect(told).toHaveLength(count)
  })

  it('reports nothing about labels and profiles that the request leaves empty', () => {
    expect(supported({ Process: {}, Linux: {} }).told).toEqual([])
  })

  it('drops the division of the host’s caches', () => {
    const { spec, told } = supported({ Linux: { IntelRdt: { L3CacheSchema: 'L3:0=f' } } })
    expect(spec.Linux?.IntelRdt).toBeUndefined()
    expect(told).toEqual(['linux.intelRdt: L3:0=f: the guest has no resctrl'])
  })

  it('drops limits of huge pages that the guest does not have', () => {
    const HugepageLimits = ['64KB', '2MB', '1GB', '2 MB', '', '0MB', 'x'].map((Pagesize) => ({ Pagesize }))
    const { spec, told } = supported(
      { Linux: { Resources: { HugepageLimits } } },
      { hugePageSizes: new Set([65_536n, 2_097_152n]) },
    )
    expect(spec.Linux?.Resources?.HugepageLimits.map(({ Pagesize }) => Pagesize)).toEqual(['64KB', '2MB'])
    expect(told[0]).toBe('linux.resources.hugepageLimits: 1GB: no such pages in the guest')
    expect(told).toHaveLength(5)
  })

  it('drops seccomp flags that the runtime lacks', () => {
    const Flags = ['SECCOMP_FILTER_FLAG_LOG', 'SECCOMP_FILTER_FLAG_TSYNC']
    const { spec, told } = supported(
      { Linux: { Seccomp: { DefaultAction: 'SCMP_ACT_ALLOW', Flags } } },
      { seccompFlags: new Set(['SECCOMP_FILTER_FLAG_TSYNC']) },
    )
    expect(spec.Linux?.Seccomp?.Flags).toEqual(['SECCOMP_FILTER_FLAG_TSYNC'])
    expect(told).toEqual(['linux.seccomp.flags: SECCOMP_FILTER_FLAG_LOG: the OCI runtime lacks it'])
  })

  it('keeps a spec without process and linux part as it is', () => {
    expect(supported({ Hostname: 'h' }).spec).toEqual(Spec.fromPartial({ Hostname: 'h' }))
  })
})

describe('supportedProcess', () => {
  it.each([
    ['above', 2n ** 40n, 2n ** 41n, 1_048_576n, 1_048_576n, 1],
    ['half above', 1024n, 2n ** 41n, 1024n, 1_048_576n, 1],
    ['at', 1_048_576n, 1_048_576n, 1_048_576n, 1_048_576n, 0],
    ['below', 4n, 5n, 4n, 5n, 0],
  ])('lowers a limit of open files %s fs.nr_open to it', (_where, Soft, Hard, soft, hard, count) => {
    const told: string[] = []
    const process = Process.fromPartial({
      Rlimits: [
        { Type: 'RLIMIT_CORE', Soft: 2n ** 64n - 1n, Hard: 2n ** 64n - 1n },
        { Type: 'RLIMIT_NOFILE', Soft, Hard },
      ],
    })
    const { Rlimits } = supportedProcess(process, NOTHING, (...parts) => told.push(parts.join(': ')))
    expect(Rlimits).toEqual([process.Rlimits[0], { Type: 'RLIMIT_NOFILE', Soft: soft, Hard: hard }])
    expect(told).toHaveLength(count)
    for (const line of told) expect(line).toContain('lowered to fs.nr_open, 1048576')
  })
})

describe('supportedResources', () => {
  it('changes no other limit', () => {
    const resources = LinuxResources.fromPartial({
      Pids: { Limit: 5n },
      HugepageLimits: [{ Pagesize: '1GB', Limit: 1n }],
    })
    expect(supportedResources(resources, new Set(), () => {})).toEqual({ ...resources, HugepageLimits: [] })
  })
})
