import { copyFileSync, mkdirSync, realpathSync } from 'node:fs'
import { join } from 'node:path'
import packageJson from '../../../package.json' with { type: 'json' }
import { buildAgent } from '../../build/agent.ts'
import { buildAgentCtl, CTL_INSTALLED, CTL_PAGES } from '../../build/agent-ctl.ts'
import { writeTar } from '../formats/tar.ts'
import { completeTree, fileFrom, link, treeOfFolder } from '../formats/tree.ts'
import type { PolicyAddon } from '../policy-addon.ts'

/**
 * Writes agent-ctl.cjs, policy.node beside it if it is given, and agent-ctl-VERSION-x86_64.tar.zst into `folder`. Returns
 * their paths. The archive is unpacked over the root of a host: the tool with the addon for vsock, the evaluator of
 * policies if it is given, the man page, and the completions.
 */
export async function makeCtlArchive(
  folder: string,
  policy?: Pick<PolicyAddon, 'path' | 'licences'>,
): Promise<readonly string[]> {
  const built = await buildAgentCtl()
  const addon = join(realpathSync(await buildAgent()), 'addon.node')
  mkdirSync(folder, { recursive: true })
  const tool = join(folder, 'agent-ctl.cjs')
  copyFileSync(join(built, 'agent-ctl.cjs'), tool)
  const archive = join(folder, `agent-ctl-${packageJson.version}-x86_64.tar.zst`)
  const tree = completeTree([
    ...Object.values(CTL_INSTALLED).map((name) =>
      fileFrom(`usr/lib/agent-ctl/${name}`, join(built, 'installed', name), 0o755),
    ),
    fileFrom('usr/lib/agent-ctl/addon.node', addon),
    ...(policy === undefined
      ? []
      : [
          fileFrom('usr/lib/agent-ctl/policy.node', policy.path),
          ...treeOfFolder(policy.licences, 'usr/share/doc/agent-ctl/licences/crates'),
        ]),
    link('usr/bin/agent-ctl', '../lib/agent-ctl/agent-ctl.cjs'),
    ...Object.keys(CTL_PAGES).map((path) =>
      fileFrom(`usr/share/${path}`, join(built, path.replaceAll('/', '-'))),
    ),
  ])
  await writeTar(archive, tree, { last: true })
  if (policy === undefined) return [tool, archive]
  const evaluator = join(folder, 'policy.node')
  copyFileSync(policy.path, evaluator)
  return [tool, evaluator, archive]
}
