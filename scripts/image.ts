import { messageOf } from '../src/base/errors.ts'
import { writeImageFolder } from '../src/image/image-folder.ts'
import {
  filesAsJson,
  filesAsLines,
  IMAGE_HELP,
  imageOptions,
  UsageError,
} from '../src/image/image-options.ts'

/** `npm run image`: writes the guest image for hypervisors and shims; see {@link IMAGE_HELP}. */
try {
  const options = imageOptions(process.argv.slice(2))
  if (options === 'help') process.stdout.write(IMAGE_HELP)
  else {
    const files = await writeImageFolder({ ...options, progress: (line) => console.error(`image: ${line}`) })
    process.stdout.write(
      options.json ? filesAsJson(options.folder, files) : filesAsLines(options.folder, files),
    )
  }
} catch (error) {
  console.error(`image: ${messageOf(error)}`)
  process.exitCode = error instanceof UsageError ? 2 : 1
}
