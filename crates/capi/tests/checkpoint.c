/* Both ways to sleep for load between two units of work; nothing loads the machine here. */
#include <unconvoy.h>

int main(void)
{
	return unconvoy_checkpoint_if_loaded() || unconvoy_checkpoint();
}
