import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { regenerate } from '../src/build/generate.ts'
import { projectRoot } from '../src/build/project.ts'
import { COMMANDS } from '../src/ctl/commands/table.ts'
import { withReference } from '../src/ctl/help/reference-page.ts'
import { metricsPage } from './metrics-page.ts'
import { securityPage } from './security-page.ts'

/**
 * `npm run gen`: generates src/gen from proto/, the commands in docs/agent-ctl.md from their table, docs/metrics.md from the
 * table of metrics, and the tables in docs/security.md, docs/rpcs.md and docs/recovery.md from the list of advisories, the
 * declarations of the RPCs and the recovery table.
 */
regenerate()
const page = join(projectRoot, 'docs/agent-ctl.md')
writeFileSync(page, withReference(readFileSync(page, 'utf8'), COMMANDS))
writeFileSync(join(projectRoot, 'docs/metrics.md'), metricsPage())
const security = join(projectRoot, 'docs/security.md')
writeFileSync(security, securityPage(readFileSync(security, 'utf8')))
// Its imports may need what has just been generated.
const { rpcsPage } = await import('./rpcs-page.ts')
const rpcs = join(projectRoot, 'docs/rpcs.md')
writeFileSync(rpcs, await rpcsPage(readFileSync(rpcs, 'utf8')))
const { recoveryPage } = await import('./recovery-page.ts')
const recovery = join(projectRoot, 'docs/recovery.md')
writeFileSync(recovery, recoveryPage(readFileSync(recovery, 'utf8')))
