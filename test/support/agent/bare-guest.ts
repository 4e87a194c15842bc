import { defaultConfig } from '../../../src/agent/config/load-config.ts'
import { NetworkRecord } from '../../../src/handlers/network/network-record.ts'
import type { AgentConfig } from '../../../src/settings/settings.ts'
import { FakeOs } from '../fakes/fake-os.ts'
import { recordingLog } from '../fakes/recording-log.ts'

/** A guest in the state in which vminit starts the agent, and the context of a boot step. */
export async function bareGuest(config: Partial<AgentConfig> = {}) {
  const os = new FakeOs()
  const { lines, log } = recordingLog()
  for (const [target, type] of [
    ['/proc', 'proc'],
    ['/sys', 'sysfs'],
    ['/dev', 'devtmpfs'],
  ] as const) {
    await os.files.makeDirectories(target)
    await os.mounts.mount({ source: type, target, type, flags: [], data: '' })
  }
  os.mounts.requests.length = 0
  const files: Readonly<Record<string, string>> = {
    '/proc/cmdline': 'quiet\n',
    '/proc/meminfo': 'MemTotal:        2097152 kB\n',
    '/proc/sys/fs/nr_open': '1048576\n',
    '/proc/sys/kernel/hostname': '(none)\n',
    '/proc/self/oom_score_adj': '0\n',
    '/etc/hostname': 'guest\n',
    '/sys/fs/cgroup/cgroup.controllers': 'cpuset cpu memory pids\n',
    '/sys/fs/cgroup/cgroup.subtree_control': '\n',
    '/dev/ptmx': '',
  }
  for (const [path, content] of Object.entries(files)) await os.files.put(path, content)
  await os.files.makeDirectories('/sys/bus/pci/devices/0000:00:00.0')
  os.tools.script(() => ({}))
  const environment: Record<string, string | undefined> = { PATH: '/usr/bin' }
  const networkRecord = new NetworkRecord(log)
  const context = { os, config: { ...defaultConfig(), ...config }, log, networkRecord, environment }
  return { os, context, lines, environment }
}
