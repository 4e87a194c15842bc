import { beforeAll, describe, expect, it } from 'vitest'
import { ensureImage } from '../../../src/image/ensure-image.ts'
import { KATA_COMMAND_LINE } from '../../fixtures/kata-command-line.ts'
import type { Pod } from '../../support/containers/pod.ts'
import { cannotBoot, progress, type TestGuestOptions } from '../../support/vm/boot-guest.ts'
import { expectToOutliveAgent } from '../../support/vm/container-life.ts'
import { bootPod, consoleLine, GUEST_PROC } from '../../support/vm/guest-pod.ts'

interface Form {
  readonly name: string
  readonly image: Pick<TestGuestOptions, 'kernel' | 'form'>
  readonly options: Omit<TestGuestOptions, 'kernel' | 'form'>
  /** The root as mounted. */
  readonly root: RegExp
  readonly release: RegExp
  readonly execs: { readonly inTurn: number; readonly atOnce: number }
}

const FORMS: readonly Form[] = [
  {
    name: 'the disk root in 128 MiB, with a console on its command line that is not there,',
    image: {},
    options: { memoryMib: 128, append: ['console=hvc0'] },
    root: /^\/dev\/vda \/ erofs ro/m,
    release: /^6\.12\./,
    execs: { inTurn: 20, atOnce: 1 },
  },
  {
    name: 'the partitioned root on Debian 12’s kernel, in 128 MiB with crun,',
    image: { kernel: 'bookworm', form: 'partitioned' },
    options: { memoryMib: 128, append: ['agent.runtime=crun'] },
    root: /^\/dev\/vda1 \/ erofs ro/m,
    release: /^6\.1\./,
    execs: { inTurn: 1, atOnce: 5 },
  },
  {
    name: 'all in one initrd in 448 MiB, under the command line that Kata writes,',
    image: { form: 'initrd' },
    options: { memoryMib: 448, console: 'virtio', append: KATA_COMMAND_LINE },
    root: /^\S+ \/ rootfs /m,
    release: /^6\.12\./,
    execs: { inTurn: 1, atOnce: 1 },
  },
]

async function expectExecs(pod: Pod, { inTurn, atOnce }: Form['execs']): Promise<void> {
  await pod.run('crowded', ['sleep', '1000'])
  const execOf = async (execId: string) => {
    const process = await pod.add('crowded', execId, ['sh', '-c', `echo ${execId}; exit 7`])
    expect([(await process.readAll()).toString(), await process.wait()]).toEqual([`${execId}\n`, 7])
  }
  for (let count = 1; count <= inTurn; count += 1) await execOf(`turn-${count}`)
  await Promise.all(Array.from({ length: atOnce }, (_, index) => execOf(`once-${index}`)))
  await pod.remove('crowded')
}

describe.skipIf(cannotBoot() !== undefined)('a guest whose image is', () => {
  // The first time, this fetches a kernel that no other test has.
  beforeAll(async () => {
    for (const { image } of FORMS) await ensureImage({ ...image, progress })
  })

  it.each(FORMS)(
    '$name boots without a shell, runs a container, adds processes, and continues when its agent dies',
    async ({ image, options, root, release, execs }) => {
      const { guest, pod } = await bootPod({ ...image, ...options })
      try {
        expect(await pod.output('release', 'uname -r')).toMatch(release)
        expect(await pod.output('mounts', 'cat /guest/proc/1/mounts', { mounts: [GUEST_PROC] })).toMatch(root)
        const text = await pod.output('bulk', 'head -c 1000000 /dev/zero | tr "\\0" x')
        expect(text.length).toBe(1_000_000)
        await expectExecs(pod, execs)
        const restarted = consoleLine(guest, /vminit: the agent was killed by signal 9: restart 1 in/)
        await Promise.all([restarted, expectToOutliveAgent(pod)])
        // The agent powers the guest off after it has answered.
        await pod.agent.destroySandbox({})
        await guest.guest.vm.exited
        expect(guest.consoleText()).toContain('"msg":"stopped"')
        expect(guest.consoleText()).not.toContain('"because":"unknown"')
      } finally {
        await guest.stop()
      }
    },
  )
})
