import { bind } from '../../test/support/containers/container-requests.ts'
import type { Pod } from '../../test/support/containers/pod.ts'
import { guestProgram } from '../../test/support/programs/guest/guest-program.ts'
import { GUEST_PROC } from '../../test/support/vm/guest-pod.ts'

/** The program `mount-prober` in a container of a guest (test/support/programs/guest/mount-prober.c). */
export interface MountProber {
  begin(command: string): Promise<void>
  /** Microseconds from the kernel's uevent of each disk until its mount. */
  times(count: number): Promise<readonly number[]>
}

const CAPABILITIES = ['CAP_SYS_ADMIN', 'CAP_SYS_PTRACE', 'CAP_SYS_NICE']
/** The capabilities allow to mount disks, to read the mount namespace of process 1 and to raise the priority. */
export async function startMountProber(pod: Pod): Promise<MountProber> {
  const install = 'cat > /tmp/prober; chmod +x /tmp/prober; echo there; exec sleep 1000000'
  const init = await pod.run('prober', ['sh', '-c', install], {
    capabilities: CAPABILITIES,
    mounts: [GUEST_PROC, bind('/dev', '/guest/dev')],
    linux: { Resources: { Devices: [{ Allow: true, Type: 'a', Access: 'rwm' }] } },
  })
  await init.write(await guestProgram('mount-prober'))
  await init.closeStdin()
  await init.readUntil('there')
  const running = await pod.add('prober', 'run', ['/tmp/prober'], { capabilities: CAPABILITIES })
  return {
    async begin(command) {
      await running.write(`${command}\n`)
      await running.readUntil('ready\n')
    },
    async times(count) {
      let text = ''
      while (text.split('\n').length <= count) {
        const chunk = await running.read()
        if (chunk.length === 0) throw new Error(`the prober ended: ${await running.readAll('stderr')}`)
        text += chunk.toString()
      }
      return text
        .trim()
        .split('\n')
        .map((line) => Number(line.split(' ')[1]))
    },
  }
}
